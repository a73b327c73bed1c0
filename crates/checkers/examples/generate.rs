//! Prints a random history of a small correct store: `generate SEED EVENTS KEYS`.

#[path = "../tests/support/model.rs"]
mod model;

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [seed, events, keys] = arguments.as_slice() else { return Err("usage: generate SEED EVENTS KEYS".into()) };
    let number = |text: &String| text.parse::<u32>().map_err(|_| format!("{text} is not a number"));
    print!("{}", model::history(number(seed)?.into(), number(events)? as usize, number(keys)?.max(1), 3));
    Ok(())
}
