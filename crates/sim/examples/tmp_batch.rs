use rheostat_sim::batch::{self, BatchOptions, Summary};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let options =
        BatchOptions { protocol: args[1].clone(), options: toml::from_str(args.get(5).map_or("", |s| s)).unwrap(), planted: None, verify: false };
    let (first, count): (u64, u64) = (args[3].parse().unwrap(), args[4].parse().unwrap());
    if args[2] == "none" {
        let mut summary = Summary::default();
        for seed in first..first + count {
            batch::run_seed(&options, seed, &mut summary).unwrap();
            if summary.found.len() >= 3 {
                break;
            }
        }
        print!("{summary}");
        println!("unseen: {:?}", summary.unseen(&args[1]));
        for found in &summary.found {
            println!("--- seed {} {}: {}", found.seed, found.failure.promise, found.failure.text);
        }
        if std::env::var("SHRINK").is_ok()
            && let Some(found) = summary.found.first()
        {
            let s = batch::shrink_seed(&options, found);
            println!("{}", s.plan);
            let r = rheostat_sim::run_plan(&s.plan, rheostat_sim::TraceLevel::Story).unwrap();
            println!("{}", r.trace.join("\n"));
            println!("{}", r.failure.unwrap().text);
        }
    } else {
        for bug in batch::bugs(&args[1], &args[2]).unwrap() {
            let c = batch::catch(&options, bug, first, count).unwrap();
            println!("{} {} {:?}", args[1], bug, c.by);
        }
    }
}
