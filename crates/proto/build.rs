//! Compiles `rheostat/v1/rheostat.proto` without protoc.

use prost::Message as _;
use std::error::Error;
use std::path::PathBuf;

const PROTO: &str = "rheostat/v1/rheostat.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    let descriptors = protox::compile([PROTO], ["."])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
