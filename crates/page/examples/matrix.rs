use rheostat_page::scenarios::*;
fn main() {
    let full = std::env::args().nth(1);
    for s in ALL.iter().filter(|s| full.as_deref().is_none_or(|f| f == s.name)) {
        println!("== {}", s.name);
        for p in rheostat_protocols::registry::names() {
            let v = Variant { name: p, protocol: p, lines: "", expected: Expected::Kept };
            let plan = match s.plan(&v) {
                Ok(p) => p,
                Err(e) => {
                    println!("{p}: {e}");
                    continue;
                }
            };
            let run = rheostat_page::request::Run { plan, touches: Default::default(), command: None };
            let r = rheostat_page::report::report(&run).unwrap();
            println!(
                "{p}: {} {:?} messages {} asked {} steps {} json {} end {}",
                r.verdict.came,
                r.verdict.promise,
                r.messages.len(),
                r.messages.iter().filter(|m| m.asked).count(),
                r.steps.len(),
                serde_json::to_string(&r).unwrap().len(),
                r.end
            );
            for o in &r.operations {
                println!("     {:>8}..{:>8} {} {} -> {} {:?}", o.begun, o.ended.unwrap_or(-1.0), r.lanes[o.lane].name, o.text, o.result, o.event);
            }
            if r.verdict.promise.is_some() {
                println!("{}", r.verdict.text);
            }
        }
    }
}
