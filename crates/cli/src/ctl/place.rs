//! Where backups and archives are: a folder, or a bucket of an object store.

use crate::Failure;
use clap::Args;
use rheostat_backup::{Folder, Store};
use rheostat_objects::{Bucket, Credentials, Settings};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What every help text of a command with places says at its end.
pub(super) const HELP: &str = "\
A place is a folder, or s3://BUCKET/PREFIX in any store of S3's kind. Its keys come from the environment, and from nowhere else:
  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, of a session, AWS_SESSION_TOKEN;
  AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or AWS_DEFAULT_REGION, and AWS_CA_BUNDLE stand for --s3-endpoint, --s3-region and --s3-authority.";

/// How to reach an object store.
#[derive(Args, Debug, Clone)]
pub struct Objects {
    /// Of s3:// places: the store, http://HOST:PORT or https://HOST:PORT [default: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, else Amazon's]
    #[arg(long, value_name = "URL", global = true)]
    s3_endpoint: Option<String>,
    /// Of s3:// places: the region that requests are signed for [default: AWS_REGION or AWS_DEFAULT_REGION, else us-east-1]
    #[arg(long, value_name = "REGION", global = true)]
    s3_region: Option<String>,
    /// Of s3:// places: check the store's certificate against these authorities' (PEM) [default: AWS_CA_BUNDLE, else this machine's]
    #[arg(long, value_name = "FILE", global = true)]
    s3_authority: Option<PathBuf>,
    /// Of s3:// places: allow http:// to another machine, where everybody on the way can read the data
    #[arg(long, global = true)]
    s3_plaintext: bool,
    /// Of s3:// places: MiB of a part. A keyspace's file has 10,000 parts at most, and four are in memory
    #[arg(long, value_name = "MIB", default_value = "16", global = true, value_parser = clap::value_parser!(u16).range(5..=1024))]
    s3_part: u16,
}

/// The first of these variables that is set to something.
fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

impl Objects {
    /// The place that `text` names.
    pub(super) fn open(&self, text: &str) -> Result<Arc<dyn Store>, Failure> {
        self.open_within(text, None)
    }

    /// The place that `text` names, where each request is tried for so long.
    pub(super) fn open_within(&self, text: &str, patience: Option<Duration>) -> Result<Arc<dyn Store>, Failure> {
        if !text.starts_with("s3://") {
            return match text.split_once("://") {
                Some((scheme, _)) => Err(format!("`{text}`: there are no places of kind {scheme}://; a place is a folder, or s3://BUCKET/PREFIX")),
                None if text.is_empty() => Err("a place without a name".into()),
                None => Ok(Arc::new(Folder::new(text))),
            };
        }
        let missing = |name: &str| {
            format!("{text}: {name} is not set: an object store's keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment")
        };
        let key = |name: &str| variable(&[name]).ok_or_else(|| missing(name));
        let credentials = Credentials {
            access_key: key("AWS_ACCESS_KEY_ID")?,
            secret_key: key("AWS_SECRET_ACCESS_KEY")?,
            session_token: variable(&["AWS_SESSION_TOKEN"]),
        };
        let endpoint = self.s3_endpoint.clone().or_else(|| variable(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]));
        let region = self.s3_region.clone().or_else(|| variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]));
        let settings = Settings::new(endpoint, region, credentials);
        let settings = Settings {
            authorities: self.s3_authority.clone().or_else(|| variable(&["AWS_CA_BUNDLE"]).map(PathBuf::from)),
            allow_plaintext: self.s3_plaintext,
            part_bytes: usize::from(self.s3_part) << 20,
            patience: patience.unwrap_or(settings.patience),
            ..settings
        };
        Ok(Arc::new(Bucket::new(text, settings).map_err(|error| error.to_string())?))
    }
}
