//! The files of the pages: parts of the program.

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};

/// A file.
pub(super) struct Page {
    path: &'static str,
    kind: &'static str,
    content: &'static str,
}

macro_rules! pages {
    ($($path:literal, $kind:literal, $file:literal;)*) => {
        &[$(Page { path: $path, kind: $kind, content: include_str!(concat!("../../../../ui/", $file)) }),*]
    };
}

const PAGES: &[Page] = pages! {
    "/", "text/html; charset=utf-8", "index.html";
    "/console.css", "text/css; charset=utf-8", "console.css";
    "/icon.svg", "image/svg+xml", "icon.svg";
    "/js/main.js", "text/javascript; charset=utf-8", "js/main.js";
    "/js/api.js", "text/javascript; charset=utf-8", "js/api.js";
    "/js/dom.js", "text/javascript; charset=utf-8", "js/dom.js";
    "/js/format.js", "text/javascript; charset=utf-8", "js/format.js";
    "/js/map.js", "text/javascript; charset=utf-8", "js/map.js";
    "/js/layout.js", "text/javascript; charset=utf-8", "js/layout.js";
    "/js/key.js", "text/javascript; charset=utf-8", "js/key.js";
    "/js/diagram.js", "text/javascript; charset=utf-8", "js/diagram.js";
    "/js/dial.js", "text/javascript; charset=utf-8", "js/dial.js";
    "/js/time.js", "text/javascript; charset=utf-8", "js/time.js";
    "/js/chart.js", "text/javascript; charset=utf-8", "js/chart.js";
    "/js/counters.js", "text/javascript; charset=utf-8", "js/counters.js";
    "/js/monitors.js", "text/javascript; charset=utf-8", "js/monitors.js";
};

/// The page at `path`.
pub(super) fn find(path: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.path == path)
}

impl Page {
    pub(super) fn response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(Bytes::from_static(self.content.as_bytes())));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        // A newer program has newer pages.
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_file_of_the_pages_is_served() {
        let ui = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ui");
        let files = |folder: &str| -> Vec<String> {
            let entries =
                std::fs::read_dir(ui.join(folder.trim_start_matches('/'))).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            entries
                .filter(|name| [".html", ".css", ".js", ".svg"].iter().any(|end| name.ends_with(end)))
                .map(|name| format!("{folder}/{name}"))
                .collect()
        };
        for file in files("").into_iter().chain(files("/js")) {
            let path = if file == "/index.html" { "/" } else { &file };
            assert!(find(path).is_some_and(|page| !page.content.is_empty()), "{file} is not served");
        }
    }
}
