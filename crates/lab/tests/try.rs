#[test]
fn go() {
    use rheostat_lab::*;
    let folder = tempfile::tempdir().unwrap();
    for (e, text) in catalogue::all().unwrap() {
        let ran = run::run(&run::Run { experiment: &e, text, full: false, again: false, folder: folder.path() }, &mut [Box::new(ground::VirtualTime)], &rheostat_bench::Progress::hidden()).unwrap();
        for f in expect::judge(&e, &ran.rows) { println!("{}", f.text()); }
        println!("{:?}", ran.rows[0].values);
        println!("took {}", ran.rows.iter().map(|r| r.took_s).sum::<f64>());
    }
}
