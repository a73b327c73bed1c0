fn main() {
    use rheostat_lab::*;
    let folder = std::path::PathBuf::from("/tmp/lab-out");
    for name in std::env::args().skip(1) {
        for (experiment, text) in catalogue::find(&name).unwrap() {
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
