//! The web page's files, compiled into the binary.

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, content type and body of each file. The page uses relative paths, so that it also works below a
/// proxy's path prefix.
pub const FILES: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/store.html", "text/html; charset=utf-8", include_str!("page/store.html")),
    ("/page/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page/about.js", SCRIPT, include_str!("page/about.js")),
    ("/page/address.js", SCRIPT, include_str!("page/address.js")),
    ("/page/adopt.js", SCRIPT, include_str!("page/adopt.js")),
    ("/page/api.js", SCRIPT, include_str!("page/api.js")),
    ("/page/basket.js", SCRIPT, include_str!("page/basket.js")),
    ("/page/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/page/form.js", SCRIPT, include_str!("page/form.js")),
    ("/page/keys.js", SCRIPT, include_str!("page/keys.js")),
    ("/page/live.js", SCRIPT, include_str!("page/live.js")),
    ("/page/load.js", SCRIPT, include_str!("page/load.js")),
    ("/page/main.js", SCRIPT, include_str!("page/main.js")),
    ("/page/modes.js", SCRIPT, include_str!("page/modes.js")),
    ("/page/poll.js", SCRIPT, include_str!("page/poll.js")),
    ("/page/row.js", SCRIPT, include_str!("page/row.js")),
    ("/page/runs.js", SCRIPT, include_str!("page/runs.js")),
    ("/page/select.js", SCRIPT, include_str!("page/select.js")),
    ("/page/session.js", SCRIPT, include_str!("page/session.js")),
    ("/page/share.js", SCRIPT, include_str!("page/share.js")),
    ("/page/store.css", "text/css; charset=utf-8", include_str!("page/store.css")),
    ("/page/store.js", SCRIPT, include_str!("page/store.js")),
    ("/page/store_address.js", SCRIPT, include_str!("page/store_address.js")),
    ("/page/store_chart.js", SCRIPT, include_str!("page/store_chart.js")),
    ("/page/store_side.js", SCRIPT, include_str!("page/store_side.js")),
    ("/page/targets.js", SCRIPT, include_str!("page/targets.js")),
    ("/page/text.js", SCRIPT, include_str!("page/text.js")),
    ("/page/toasts.js", SCRIPT, include_str!("page/toasts.js")),
    ("/page/versions.js", SCRIPT, include_str!("page/versions.js")),
    ("/page/viewer.js", SCRIPT, include_str!("page/viewer.js")),
    ("/page/window.js", SCRIPT, include_str!("page/window.js")),
    ("/page/windowed.js", SCRIPT, include_str!("page/windowed.js")),
];

/// Content security policy of the page: its own scripts and styles, requests to its own service, and flame
/// graphs in a frame.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                          frame-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_page_files_are_served_and_all_references_exist() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/page");
        let there: BTreeSet<String> = std::fs::read_dir(folder)
            .expect("the folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .collect();
        let served: BTreeSet<String> = FILES
            .iter()
            .map(|(path, ..)| {
                if *path == "/" {
                    "index.html"
                } else {
                    path.strip_prefix("/page").unwrap_or(path).trim_start_matches('/')
                }
                .to_owned()
            })
            .collect();
        assert_eq!(there, served);
        for (path, _, body) in FILES {
            for name in body.split('"').skip(1).filter_map(|part| part.strip_prefix("./")) {
                assert!(served.contains(name), "{path} asks for {name}");
            }
        }
    }

    #[test]
    fn page_uses_no_external_urls_or_unsafe_html() {
        for (path, _, body) in FILES {
            for word in [
                "http://",
                "https://",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "eval(",
                "document.write",
                "<style",
                " style=",
                " onclick=",
            ] {
                assert!(!body.contains(word), "{path} has {word}");
            }
        }
    }
}
