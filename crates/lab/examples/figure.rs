fn main() {
    use rheostat_lab::*;
    let folder = std::path::PathBuf::from("/tmp/lab-out");
    for name in std::env::args().skip(1) {
        let found: Vec<(experiment::Experiment, String)> = if name.ends_with(".toml") { let text = std::fs::read_to_string(&name).unwrap(); match experiment::parse(&name, &text) { Ok(e) => vec![(e, text)], Err(e) => { println!("ERROR {e}"); continue } } } else { catalogue::find(&name).unwrap().into_iter().map(|(e,t)| (e,t.to_owned())).collect() };
        for (experiment, text) in found {
            let began = std::time::Instant::now();
            let ran = run::run(
                &run::Run { experiment: &experiment, text: &text, full: false, again: true, folder: &folder },
                &mut [Box::new(ground::VirtualTime)],
                &rheostat_bench::Progress::hidden(),
            );
            let ran = match ran {
                Ok(r) => r,
                Err(e) => {
                    println!("ERROR {e}");
                    continue;
                }
            };
            let chapter = report::Chapter { experiment, rows: ran.rows };
            println!("{}", report::text(&chapter));
            for p in report::pictures(&chapter) {
                chart::png(&p, &folder.join(format!("{}.png", p.name))).unwrap();
            }
            println!("took {:?}", began.elapsed());
        }
    }
}
