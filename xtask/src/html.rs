//! `cargo xtask test-html`: opens pages of `memtrace html` in a browser and uses them as a reader does.

use crate::{
    browser::{Browser, Look},
    command::{self, build_memtrace, compile_c, output, root, target_dir},
    setup,
};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Where neither text nor tables may reach beyond the window.
const WIDTHS: [u32; 3] = [360, 900, 1440];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Use these two recordings in place of new ones: one of a program that grows, and its baseline
    #[arg(num_args = 2)]
    recordings: Vec<PathBuf>,
    /// Also write pictures of the pages to this folder
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
}

/// `cargo xtask test-html`.
///
/// # Errors
/// When a page does not do what it should, or the browser has anything to complain about.
pub(crate) fn run(options: &Options) -> Result<()> {
    setup::for_html()?;
    let memtrace = build_memtrace(false)?;
    let folder = target_dir().join("html");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let (sick, baseline) = match &options.recordings[..] {
        [sick, baseline] => (sick.clone(), baseline.clone()),
        _ => (leaking(&memtrace, &folder)?, healthy(&memtrace, &folder)?),
    };
    let (sick, baseline) = (sick.as_path(), baseline.as_path());
    let mut browser = Browser::start(&folder.join("profile"))?;
    let page = page(&memtrace, &folder.join("recording.html"), sick, None)?;
    let said = output(Command::new(&memtrace).arg("diagnose").arg(sick))?;
    browser.open(&page)?;
    let loaded = "performance.getEntriesByType('navigation')[0].loadEventEnd";
    let loaded = browser.evaluate(loaded)?;
    println!("test-html: the page was loaded after {loaded} ms");
    reading(&mut browser, said.lines().next().unwrap_or_default())
        .context("the recording's page")?;
    looks(&mut browser, options, "recording", &page)?;
    let page = self::page(
        &memtrace,
        &folder.join("comparison.html"),
        sick,
        Some(baseline),
    )?;
    browser.open(&page)?;
    comparison(&mut browser).context("the comparison's page")?;
    looks(&mut browser, options, "comparison", &page)?;
    println!("test-html: both pages do what they should");
    Ok(())
}

/// Records an example that leaks.
fn leaking(memtrace: &Path, folder: &Path) -> Result<PathBuf> {
    let leak = folder.join("leak");
    compile_c(&root().join("examples/leak.c"), &leak)?;
    record(memtrace, folder.join("leak.mtr"), Command::new(leak))
}

/// Records a program that allocates little and keeps nothing.
fn healthy(memtrace: &Path, folder: &Path) -> Result<PathBuf> {
    let mut sleep = Command::new("sleep");
    sleep.arg("3");
    record(memtrace, folder.join("sleep.mtr"), sleep)
}

fn record(memtrace: &Path, recording: PathBuf, program: Command) -> Result<PathBuf> {
    command::need_root("recording")?;
    let mut record = Command::new(memtrace);
    record.args(["record", "--force", "-o"]).arg(&recording);
    record.arg("--").arg(program.get_program());
    command::run(record.args(program.get_args()))?;
    Ok(recording)
}

fn page(memtrace: &Path, page: &Path, sick: &Path, baseline: Option<&Path>) -> Result<PathBuf> {
    let mut html = Command::new(memtrace);
    html.args(["html", "--force", "-o"]).arg(page);
    if let Some(baseline) = baseline {
        html.arg("--diff").arg(baseline);
    }
    command::run(html.arg(sick))?;
    fs::canonicalize(page).with_context(|| format!("no page `{}`", page.display()))
}

/// Text of an element, by its id.
fn text(browser: &mut Browser, id: &str) -> Result<String> {
    let value = browser.evaluate(&format!("document.getElementById('{id}').textContent"))?;
    Ok(value.as_str().unwrap_or_default().to_owned())
}

fn expect(browser: &mut Browser, what: &str, expression: &str) -> Result<()> {
    let value = browser.evaluate(expression)?;
    ensure!(
        value == Value::Bool(true),
        "{what}: `{expression}` is {value}"
    );
    Ok(())
}

fn is_quiet(browser: &mut Browser) -> Result<()> {
    let complaints = browser.complaints();
    ensure!(complaints.is_empty(), "console: {}", complaints.join("\n"));
    Ok(())
}

/// Middle of an element, in the window.
fn middle(browser: &mut Browser, selector: &str, share: f64) -> Result<(f64, f64)> {
    let place = browser.evaluate(&format!(
        "(() => {{ const found = document.querySelector('{selector}'); found.scrollIntoView({{ block: 'center' }}); \
         const box = found.getBoundingClientRect(); return [box.left + box.width * {share}, box.top + box.height / 2]; }})()"
    ))?;
    let number = |index: usize| place[index].as_f64();
    number(0)
        .zip(number(1))
        .with_context(|| format!("no element `{selector}`"))
}

fn click(browser: &mut Browser, selector: &str) -> Result<()> {
    let at = middle(browser, selector, 0.5)?;
    browser.drag(at, at)
}

/// Parts that every page has.
fn structure(browser: &mut Browser) -> Result<()> {
    for (what, expression) in [
        ("one title", "document.querySelectorAll('h1').length === 1"),
        (
            "sections are named",
            "[...document.querySelectorAll('section')].every((of) => document.getElementById(of.getAttribute('aria-labelledby')))",
        ),
        (
            "fields have labels",
            "[...document.querySelectorAll('input, select')].every((of) => of.labels.length > 0)",
        ),
        (
            "table headers have a scope",
            "[...document.querySelectorAll('th')].every((of) => of.scope)",
        ),
        (
            "nothing is loaded",
            "performance.getEntriesByType('resource').length === 0",
        ),
        (
            "frames are drawn",
            "document.querySelectorAll('.frame').length > 1",
        ),
        (
            "lines are listed",
            "document.querySelectorAll('#table tbody tr').length > 0",
        ),
        (
            "the chart has lines",
            "document.querySelectorAll('#chart path').length > 1",
        ),
    ] {
        expect(browser, what, expression)?;
    }
    let unnamed = browser.unnamed()?;
    ensure!(
        unnamed.is_empty(),
        "a screen reader finds these without a name: {}",
        unnamed.join(", ")
    );
    Ok(())
}

/// Reads the verdict, chooses an interval, searches, zooms, sorts and switches.
fn reading(browser: &mut Browser, headline: &str) -> Result<()> {
    structure(browser)?;
    let verdict = text(browser, "verdict")?;
    ensure!(
        !headline.is_empty() && verdict.contains(headline),
        "`{headline}` is not in the verdict"
    );

    // An interval, by the mouse and by the keyboard.
    let whole = text(browser, "interval-text")?;
    let total = "document.querySelector('#table tfoot td:nth-child(4)').textContent";
    let growth = browser.evaluate(total)?;
    let (from, to) = (
        middle(browser, "#chart svg", 0.4)?,
        middle(browser, "#chart svg", 0.7)?,
    );
    browser.drag(from, to)?;
    let part = text(browser, "interval-text")?;
    ensure!(
        part != whole && part.contains(" to "),
        "dragging chose `{part}`"
    );
    ensure!(
        browser.evaluate(total)? != growth,
        "the table does not follow the interval"
    );
    browser.evaluate("document.getElementById('from').focus()")?;
    browser.press("ArrowRight")?;
    let moved = text(browser, "interval-text")?;
    ensure!(moved != part, "the slider does not move the interval");
    click(browser, "#whole")?;
    ensure!(
        text(browser, "interval-text")? == whole,
        "the whole recording again"
    );
    ensure!(
        browser.evaluate(total)? == growth,
        "the figures of the whole recording again"
    );

    // A search, and a frame to zoom to by mouse and by keyboard.
    let rows = "document.querySelectorAll('#table tbody tr').length";
    let all = browser.evaluate(rows)?;
    let line = browser.evaluate("document.querySelector('#table .name').textContent")?;
    browser.evaluate("document.getElementById('query').focus()")?;
    browser.type_text(line.as_str().unwrap_or_default())?;
    expect(
        browser,
        "matching frames are marked",
        "document.querySelectorAll('.frame.match').length > 0",
    )?;
    let matched = text(browser, "flame-text")?;
    ensure!(
        matched.contains("Matched: ") && matched.contains('%'),
        "`{matched}`"
    );
    browser.evaluate("(() => { const query = document.getElementById('query'); query.value = 'no such frame'; query.dispatchEvent(new Event('input')); })()")?;
    ensure!(
        browser.evaluate(rows)? == 0,
        "a search without matches lists no line"
    );
    browser.evaluate("(() => { const query = document.getElementById('query'); query.value = ''; query.dispatchEvent(new Event('input')); })()")?;
    ensure!(browser.evaluate(rows)? == all, "all lines again");
    click(browser, "#tree .frame:nth-child(2)")?;
    expect(
        browser,
        "a click zooms",
        "!document.getElementById('reset').disabled",
    )?;
    expect(
        browser,
        "the zoomed frame is selected",
        "document.querySelectorAll('.frame[aria-selected=true]').length === 1",
    )?;
    browser.evaluate("document.querySelector('.frame[tabindex=\"0\"]').focus()")?;
    browser.press("Escape")?;
    expect(
        browser,
        "Escape zooms out",
        "document.getElementById('reset').disabled",
    )?;
    browser.press("Home")?;
    browser.press("ArrowDown")?;
    expect(
        browser,
        "an arrow moves to a callee",
        "document.activeElement.getAttribute('aria-level') === '2'",
    )?;
    browser.press("Enter")?;
    expect(
        browser,
        "Enter zooms",
        "!document.getElementById('reset').disabled",
    )?;
    expect(
        browser,
        "the frame keeps the focus",
        "document.activeElement.classList.contains('frame')",
    )?;
    click(browser, "#reset")?;

    // Metric, layer and order.
    let live = text(browser, "flame-text")?;
    click(browser, "#metric input[value=allocated]")?;
    ensure!(
        text(browser, "flame-text")?.contains("allocated bytes"),
        "the metric is not switched"
    );
    click(browser, "#metric input[value=live]")?;
    ensure!(
        text(browser, "flame-text")? == live,
        "the first metric again"
    );
    let last = "(() => { const layer = document.getElementById('layer'); layer.selectedIndex = (layer.selectedIndex + 1) % layer.length; \
                layer.dispatchEvent(new Event('change')); return layer.selectedOptions[0].textContent.split(',')[0]; })()";
    let layer = browser.evaluate(last)?;
    let caption = text(browser, "lines-caption")?;
    ensure!(
        caption.contains(layer.as_str().unwrap_or_default()),
        "`{caption}` is not of layer {layer}"
    );
    click(browser, "#table thead th[data-column=line] button")?;
    expect(
        browser,
        "the table is sorted by line",
        "document.querySelector('th[data-column=line]').getAttribute('aria-sort') === 'ascending'",
    )?;
    is_quiet(browser)
}

/// The page of a comparison: no interval, but both sides' figures.
fn comparison(browser: &mut Browser) -> Result<()> {
    structure(browser)?;
    for (what, expression) in [
        (
            "the conclusion is there",
            "document.querySelectorAll('#comparison li').length > 0",
        ),
        ("no interval", "document.getElementById('interval').hidden"),
        (
            "the baseline is drawn",
            "document.querySelectorAll('#chart .before').length === 1",
        ),
        (
            "both sides have columns",
            "['growth', 'baseline_growth', 'difference'].every((id) => document.querySelector(`th[data-column=${id}]`))",
        ),
    ] {
        expect(browser, what, expression)?;
    }
    for metric in ["live", "baseline_growth", "growth"] {
        click(browser, &format!("#metric input[value={metric}]"))?;
    }
    is_quiet(browser)
}

/// At every width nothing reaches beyond the window, in light and dark.
fn looks(browser: &mut Browser, options: &Options, name: &str, page: &Path) -> Result<()> {
    browser.open(page)?;
    for width in WIDTHS {
        for is_dark in [false, true] {
            browser.look(Look {
                width,
                height: 900,
                is_dark,
            })?;
            expect(
                browser,
                &format!("the page fits in {width} pixels"),
                "document.documentElement.scrollWidth <= document.documentElement.clientWidth",
            )?;
            if let Some(folder) = &options.pictures {
                fs::create_dir_all(folder)?;
                let theme = if is_dark { "dark" } else { "light" };
                let file = |part| folder.join(format!("{name}-{width}-{theme}-{part}.png"));
                browser.evaluate("window.scrollTo(0, 0)")?;
                browser.picture(&file("top"), false)?;
                browser.evaluate("document.getElementById('time').scrollIntoView()")?;
                browser.picture(&file("time"), false)?;
                browser.picture(&file("whole"), true)?;
                let (from, to) = (
                    middle(browser, "#chart svg", 0.4)?,
                    middle(browser, "#chart svg", 0.7)?,
                );
                browser.drag(from, to)?;
                browser.evaluate("document.getElementById('time').scrollIntoView()")?;
                browser.picture(&file("interval"), false)?;
                browser.open(page)?;
            }
        }
    }
    browser.look(Look {
        width: 1440,
        height: 900,
        is_dark: false,
    })?;
    is_quiet(browser)
}
