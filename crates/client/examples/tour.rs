//! A short tour of the client: `cargo run -p rheostat-client --example tour -- 127.0.0.1:7401 [127.0.0.1:7411]`
//!
//! With a second address, of another data center, the session travels there.

use rheostat_client::{Client, Error, Level, Read};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut addresses = std::env::args().skip(1);
    let Some(here) = addresses.next() else {
        return Err(Error::Refused("give the gRPC address of a node, for example 127.0.0.1:7401".into()));
    };
    let client = Client::connect([here]).await?;
    let topology = client.topology();
    println!("cluster {}, data center {}, {} partitions", topology.cluster, topology.data_center, topology.partitions);

    let mut session = client.session("default");
    let version = session.put("tour:photo", "a sunset").await?;
    println!("wrote tour:photo as {version}");
    session.put("tour:comment", "what a sunset!").await?;

    let both = session.read_transaction(["tour:comment", "tour:photo"]).await?;
    for read in &both.reads {
        println!("from one snapshot: {}", text(read));
    }
    let behind = both.staleness_ms.map_or("nobody knows how far".to_string(), |ms| format!("at most {ms} ms"));
    println!("level {}, {behind} behind the other data centers", both.level.name());

    session.set_level(Some(Level::Eventual));
    let read = session.get("tour:photo").await?;
    println!("at level {}: {}", read.level.name(), text(&read));

    if let Some(there) = addresses.next() {
        let client = Client::connect([there]).await?;
        let mut travelled = client.resume("default", session.token());
        let read = travelled.get("tour:comment").await?;
        println!("the same session in {}: {}", client.topology().data_center, text(&read));
        let read = travelled.get("tour:photo").await?;
        println!("and what the comment is about: {}", text(&read));
    }
    Ok(())
}

fn text(read: &Read) -> String {
    read.value.as_deref().map_or("(nothing)".to_string(), |value| String::from_utf8_lossy(value).into_owned())
}
