//! Renders SVG as PNG with a headless browser.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use flightline_consumer::render::svg::{MinWidth, SvgOptions};

/// Default width in pixels.
const WIDTH: usize = 1600;
/// Default minimum width of frames: an image cannot be zoomed, and a few samples of deep stacks would make a
/// high, mostly empty tower.
const NARROWEST: MinWidth = MinWidth::Pixels(4.0);
/// Maximum height; browsers do not render more.
const HIGHEST: u64 = 16_000;
/// Timeout; browsers start slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const BROWSERS: &[&str] =
    &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

/// Adjusts the options of an SVG for rendering as PNG.
pub fn fit(options: &mut SvgOptions, min_width: Option<MinWidth>) {
    options.width.get_or_insert(WIDTH);
    options.min_width = min_width.unwrap_or(NARROWEST);
}

/// Writes `all` into the root frame, whose text the script draws only when the frame changes.
fn with_root_text(svg: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(svg);
    let after = |text: &str, from: usize, what: &str| Some(from + text.get(from..)?.find(what)? + what.len());
    let root = after(&text, 0, "<title>all (").and_then(|at| after(&text, at, "<text"));
    match root.and_then(|at| after(&text, at, ">")).filter(|&at| text[at..].starts_with("</text>")) {
        Some(at) => [&text[..at], "all", &text[at..]].concat().into_bytes(),
        None => svg.to_vec(),
    }
}

/// Renders an SVG.
///
/// # Errors
/// Returns an error if there is no browser or it fails.
pub fn render(svg: &[u8]) -> Result<Vec<u8>> {
    let browser = browser()?;
    let folder = tempfile::tempdir().context("cannot create a temporary directory")?;
    let (source, picture) = (folder.path().join("picture.svg"), folder.path().join("picture.png"));
    fs::write(&source, with_root_text(svg)).with_context(|| format!("cannot write {}", source.display()))?;
    let head = String::from_utf8_lossy(&svg[..svg.len().min(1000)]);
    let size = |name: &str| -> Option<u64> {
        head.split_once("<svg")?.1.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?.parse().ok()
    };
    let (Some(width), Some(height)) = (size("width"), size("height")) else {
        bail!("the image has no size");
    };
    if height > HIGHEST {
        bail!(
            "the image is {height} pixels high, more than browsers can draw; reduce it with --focus or \
             --min-width, or use --format svg"
        );
    }
    let mut command = Command::new(&browser);
    command.args([
        "--headless",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
        "--disable-extensions",
    ]);
    command.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
    command.arg(format!("--window-size={width},{height}"));
    command.arg(format!("--screenshot={}", picture.display()));
    if nix::unistd::geteuid().is_root() {
        // Chromium does not start as root with its sandbox; the input is trusted.
        command.arg("--no-sandbox");
    }
    command.arg(format!("file://{}", source.display()));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {}", browser.display()))?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for the browser")? {
            break status;
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            bail!("{} did not finish within {} s", browser.display(), PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    fs::read(&picture).with_context(|| format!("{} failed to draw the image ({status})", browser.display()))
}

/// Returns `CHROMIUM`, or the first browser found.
fn browser() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("CHROMIUM").filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all =
        std::env::split_paths(&path).flat_map(|folder| BROWSERS.iter().map(move |name| folder.join(name)));
    match all.find(|candidate| candidate.is_file()) {
        Some(found) => Ok(found),
        None => bail!(
            "PNG output needs Chromium, which is not on PATH; install it, set CHROMIUM to its path, or write .svg"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn svg_root_frame_gets_text_label() {
        let box_of = |text: &str| {
            format!(
                "<g><title>f (1)</title><text x=\"3\">f</text></g><g><title>all (9 ns, 100%)</title><rect/><text x=\"1\">{text}</text></g>"
            )
        };
        let drawn = |svg: String| String::from_utf8(with_root_text(svg.as_bytes())).unwrap();
        assert_eq!(drawn(box_of("")), box_of("all"));
        assert_eq!(drawn(box_of("all")), box_of("all"));
        assert_eq!(drawn("<svg/>".into()), "<svg/>");
    }

    #[test]
    fn png_hides_narrow_frames_by_default() {
        let fitted = |asked: Option<MinWidth>, width| {
            let mut options = SvgOptions { width, ..SvgOptions::default() };
            fit(&mut options, asked);
            (options.width, options.min_width)
        };
        assert!(matches!(fitted(None, None), (Some(WIDTH), MinWidth::Pixels(4.0))));
        assert!(matches!(
            fitted(Some(MinWidth::Percent(0.1)), Some(800)),
            (Some(800), MinWidth::Percent(0.1))
        ));
    }
}
