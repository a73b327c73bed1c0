//! A store of S3's kind in memory, for measurements: `cargo run --example bucket PORT BUCKET`. Its keys are those of the tests.

#[path = "../tests/support/mod.rs"]
#[allow(dead_code)]
mod support;

use support::{ACCESS_KEY, Kind, REGION, SECRET_KEY, Server};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, bucket] = &arguments[..] else { panic!("PORT BUCKET") };
    let server = Server::of(bucket, Kind { port: port.parse().expect("a port"), ..Kind::default() });
    println!("AWS_ENDPOINT_URL={} AWS_REGION={REGION} AWS_ACCESS_KEY_ID={ACCESS_KEY} AWS_SECRET_ACCESS_KEY={SECRET_KEY}", server.endpoint());
    // Until the end of its input.
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
}
