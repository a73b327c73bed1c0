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
    "/js/load.js", "text/javascript; charset=utf-8", "js/load.js";
    "/js/conflicts.js", "text/javascript; charset=utf-8", "js/conflicts.js";
    "/js/faults.js", "text/javascript; charset=utf-8", "js/faults.js";
    "/js/theme.js", "text/javascript; charset=utf-8", "js/theme.js";
    "/js/designer.js", "text/javascript; charset=utf-8", "js/designer.js";
    "/js/drawing.js", "text/javascript; charset=utf-8", "js/drawing.js";
    "/js/fields.js", "text/javascript; charset=utf-8", "js/fields.js";
    "/js/figure.js", "text/javascript; charset=utf-8", "js/figure.js";
};

/// Those of the page *Designer* where it is served alone.
const ALONE: &[Page] = pages! {
    "/", "text/html; charset=utf-8", "designer.html";
    "/js/alone.js", "text/javascript; charset=utf-8", "js/alone.js";
};

/// Those that it shares with the console.
const SHARED: &[&str] = &[
    "/console.css",
    "/icon.svg",
    "/js/api.js",
    "/js/dom.js",
    "/js/format.js",
    "/js/layout.js",
    "/js/theme.js",
    "/js/designer.js",
    "/js/drawing.js",
    "/js/fields.js",
    "/js/figure.js",
];

/// The page at `path`.
pub(super) fn find(path: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.path == path)
}

/// The page at `path` where the page *Designer* is served alone.
pub(super) fn find_alone(path: &str) -> Option<&'static Page> {
    ALONE.iter().find(|page| page.path == path).or_else(|| find(path).filter(|page| SHARED.contains(&page.path)))
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
            let (path, found) = match file.as_str() {
                "/index.html" => ("/", find("/")),
                "/designer.html" => ("/", find_alone("/")),
                path => (path, find(path).or_else(|| find_alone(path))),
            };
            assert!(found.is_some_and(|page| !page.content.is_empty() && ui.join(path.trim_start_matches('/')).exists()), "{file} is not served");
        }
    }

    /// What a page asks for by itself: `href`, `src`, `from`.
    fn wanted(page: &Page) -> Vec<String> {
        let parts = page.content.split(['"', '\'']);
        let local = parts.filter(|part| part.ends_with(".js") || part.ends_with(".css") || part.ends_with(".svg"));
        local
            .filter_map(|part| part.strip_prefix("./").map(|file| format!("/js/{file}")).or_else(|| part.starts_with('/').then(|| part.to_owned())))
            .collect()
    }

    #[test]
    fn the_designer_alone_has_every_file_that_it_needs_and_no_other() {
        let mut found = vec!["/".to_owned()];
        let mut at = 0;
        while at < found.len() {
            let page = find_alone(&found[at]).unwrap_or_else(|| panic!("{} is not served", found[at]));
            let new: Vec<String> = wanted(page).into_iter().filter(|file| !found.contains(file)).collect();
            new.into_iter().for_each(|file| {
                if !found.contains(&file) {
                    found.push(file)
                }
            });
            at += 1;
        }
        found.sort();
        let mut served: Vec<&str> = ALONE.iter().map(|page| page.path).chain(SHARED.iter().copied()).collect();
        served.sort_unstable();
        assert_eq!(found, served);
        assert!(find_alone("/js/main.js").is_none() && find_alone("/js/key.js").is_none());
    }
}
