//! scratch
use rheostat_sim::*;
fn main() {
    let mut args = std::env::args().skip(1);
    let (mut protocol, mut seeds, mut first, mut published, mut planted, mut trace, mut stop) =
        ("causal".to_string(), 100u64, 1u64, false, None, TraceLevel::Off, 5);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--protocol" => protocol = args.next().unwrap(),
            "--seeds" => seeds = args.next().unwrap().parse().unwrap(),
            "--seed" => {
                first = args.next().unwrap().parse().unwrap();
                seeds = 1;
            }
            "--first" => first = args.next().unwrap().parse().unwrap(),
            "--published" => published = true,
            "--planted" => planted = args.next(),
            "--trace" => trace = TraceLevel::Story,
            "--full" => trace = TraceLevel::Full,
            "--stop" => stop = args.next().unwrap().parse().unwrap(),
            _ => panic!(),
        }
    }
    let mut options = toml::Table::new();
    if published {
        options.insert("published".into(), true.into());
    }
    let start = std::time::Instant::now();
    let (mut virt, mut events, mut ops, mut fails) = (0, 0, 0, 0);
    let mut marks = std::collections::BTreeMap::<&str, u64>::new();
    let mut hash = 0u64;
    for seed in first..first + seeds {
        let plan = generate::plan(&protocol, &options, planted.as_deref(), seed);
        if std::env::var("DUMP").is_ok() {
            print!("{plan}");
            continue;
        }
        if trace > TraceLevel::Off {
            println!("{plan}");
        }
        let t = std::time::Instant::now();
        let report = run_plan(&plan, trace).unwrap();
        if std::env::var("T").is_ok() {
            println!(
                "seed {seed}: {:.1}ms virt {:.1} events {} ops {}",
                t.elapsed().as_secs_f64() * 1e3,
                report.virtual_us as f64 / 1e6,
                report.events,
                report.operations
            );
        }
        virt += report.virtual_us;
        events += report.events;
        ops += report.operations;
        hash = hash.wrapping_mul(31).wrapping_add(report.hash);
        for m in marks::ALL {
            *marks.entry(m.name).or_default() += (report.marks.count(*m) > 0) as u64;
        }
        for line in &report.trace {
            println!("{line}");
        }
        if trace > TraceLevel::Off {
            println!("{}", report.history.unwrap_or_default());
        }
        if let Some(f) = report.failure {
            fails += 1;
            println!("seed {seed}: {} {}", f.promise, f.text);
            if fails >= stop {
                println!("seeds tried {}", seed - first + 1);
                break;
            }
        }
    }
    let el = start.elapsed().as_secs_f64();
    println!(
        "{fails} failures, {:.0} seeds/s, virtual {:.1} s/seed, events {}/seed, ops {}/seed, hash {hash:x}",
        seeds as f64 / el,
        virt as f64 / 1e6 / seeds as f64,
        events / seeds,
        ops as u64 / seeds
    );
    for (m, c) in marks {
        println!("{c:6} {m}");
    }
}
