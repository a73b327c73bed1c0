//! `rheostat demo --story deadline`.

use crate::Failure;
use crate::output::say;
use rheostat_client::{Client, Error, Session, v1};
use rheostat_cluster::regions::RoundTrip;
use std::time::{Duration, Instant};

/// A keyspace that is linearizable over all data centers.
const KEYSPACE: &str = "strong";
const KEY: &str = "price";

/// Between two reads.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two lines.
const LINE: Duration = Duration::from_secs(1);
/// Lines before the data center is cut off, while it is, and afterwards.
const LINES: [usize; 3] = [2, 4, 4];

/// What the reads since the last line came to.
#[derive(Default)]
struct Told {
    strong: usize,
    eventual: usize,
    failed: usize,
    took: Vec<Duration>,
    value: Option<u64>,
}

/// Tells the story on a cluster of at least two data centers that has just been started; `ports` has the RESP and the gRPC port of each region's node. Errors: what the story meets.
pub async fn tell(regions: &[String], ports: &[(u16, u16)], round_trips: &[RoundTrip]) -> Result<(), Failure> {
    let mut clients = Vec::new();
    for (_, grpc) in ports {
        let address = format!("http://127.0.0.1:{grpc}");
        clients.push(Client::connect([address]).await.map_err(|error| error.to_string())?);
    }
    let (Some((near, writer)), Some((far, reader))) = (regions.iter().zip(&clients).next(), regions.iter().zip(&clients).next_back()) else {
        return Err("there is no data center".to_string());
    };
    // Asking the leader, and the leader a majority: two round trips, and some time to spare.
    let longest_ms = round_trips.iter().map(|pair| pair.ms).fold(0.0, f64::max);
    let level = format!("strong {}ms; eventual", ((longest_ms * 2.0 + 75.0) / 100.0).ceil().max(1.0) * 100.0);
    say!(
        "A price changes in {near}, twice a second; somebody in {far} reads it, under the service level\n\n  {level}\n\n\
         strong: nothing newer exists anywhere. eventual: what has arrived in {far}. Each answer says which of the two it is.\n"
    );
    let mut writing = writer.session(KEYSPACE);
    let mut reading = reader.session(KEYSPACE);
    reading.set_service_level(level);
    first_price(&mut writing).await?;
    say!("              strong  eventual  failed   median   longest   price in {near} / read in {far}");
    let begun = Instant::now();
    let mut price = 1;
    for (act, lines) in LINES.into_iter().enumerate() {
        if act > 0 {
            let cut = act == 1;
            for (other, region) in regions.iter().enumerate().filter(|(_, region)| *region != far) {
                for client in [reader, &clients[other]] {
                    link(client, region, far, cut).await.map_err(|error| error.to_string())?;
                }
            }
            say!("           --- {far} is {} ---", if cut { "cut off" } else { "connected again" });
        }
        for _ in 0..lines {
            let (told, written) = tokio::join!(read_on(&mut reading), write_on(&mut writing, price));
            price = written;
            line(begun, told, price);
        }
    }
    Ok(())
}

/// Writes the first price, as soon as the keyspace has a leader.
async fn first_price(session: &mut Session) -> Result<(), Failure> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match session.put(KEY, "1").await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error.to_string()),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn link(client: &Client, a: &str, b: &str, cut: bool) -> Result<(), Error> {
    let request = client.request(v1::LinkRequest { data_center: a.to_string(), other: b.to_string() });
    let answer = if cut { client.admin().pause_link(request).await? } else { client.admin().resume_link(request).await? };
    drop(answer);
    Ok(())
}

async fn read_on(session: &mut Session) -> Told {
    let (mut told, begun) = (Told::default(), Instant::now());
    while begun.elapsed() < LINE {
        let asked = Instant::now();
        match session.get(KEY).await {
            Ok(read) => {
                told.took.push(asked.elapsed());
                match read.achieved.map(|achieved| achieved.entry) {
                    Some(1) => told.strong += 1,
                    _ => told.eventual += 1,
                }
                told.value = read.value.and_then(|value| std::str::from_utf8(&value).ok()?.parse().ok()).or(told.value);
            }
            Err(_) => told.failed += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
    told
}

async fn write_on(session: &mut Session, mut price: u64) -> u64 {
    for _ in 0..2 {
        if session.put(KEY, (price + 1).to_string()).await.is_ok() {
            price += 1;
        }
        tokio::time::sleep(LINE / 3).await;
    }
    price
}

fn line(begun: Instant, told: Told, price: u64) {
    let Told { strong, eventual, failed, mut took, value } = told;
    took.sort_unstable();
    let ms = |took: Option<&Duration>| took.map_or("-".to_string(), |took| format!("{:.1} ms", took.as_secs_f64() * 1e3));
    let (median, longest) = (ms(took.get(took.len() / 2)), ms(took.last()));
    let read = value.map_or("-".to_string(), |value| value.to_string());
    say!("{:>8.1} s  {strong:>8}  {eventual:>8}  {failed:>6}  {median:>9} {longest:>9}   {price} / {read}", begun.elapsed().as_secs_f64());
}
