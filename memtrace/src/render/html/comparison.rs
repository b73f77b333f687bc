//! The page of a comparison: its data, its conclusion, and the facts that differ.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    path::Path,
};

use super::{
    data::{BaselineData, Data, ProcessData, Processes, Sites, live, times, together},
    layers::Layers,
    markup::{Row, Table, escaped, list},
    recorded::Recorded,
    tree::Tree,
};
use crate::{
    diff::{Comparison, SiteDifference},
    frames::compared_line,
    render::diff::{fact_values, summary},
    units::plural,
};

/// The recordings of a page, and what differs between them.
pub(crate) struct Compared<'a> {
    pub(crate) comparison: &'a Comparison,
    pub(crate) baseline: &'a Recorded,
    pub(crate) baseline_path: &'a Path,
}

/// The data of a comparison's page; a site is in one process for all of them. At most this many
/// sites.
pub(super) fn data(new: &Recorded, compared: &Compared, limit: usize) -> Data {
    let mut layers = Layers::default();
    let mut tree = Tree::default();
    let mut columns = Sites::default();
    let all = &compared.comparison.sites;
    let mut order: Vec<&SiteDifference> = all.iter().collect();
    order.sort_by(|a, b| b.delta.rate.abs().total_cmp(&a.delta.rate.abs()));
    let (single, others) = order.split_at(limit.min(order.len()));
    for site in single {
        let shown = site.stack().map_or_else(Vec::new, |stack| stack.shown());
        let mut path: Vec<usize> = shown.iter().rev().map(|frame| tree.frame(frame)).collect();
        if path.is_empty() {
            path.push(tree.note("[no stack]"));
        }
        let own = compared_line(&shown);
        let key = own.map_or_else(String::new, |frame| {
            format!("{:?}:{:?} {:?}", frame.file, frame.line, frame.function)
        });
        columns.node.push(tree.node(path));
        columns.line.push(match own {
            Some(_) => tree.line(key, own),
            None => tree.line("[no stack]".into(), None),
        });
        add(&mut columns, &mut layers, &[site]);
    }
    let mut rest: BTreeMap<_, Vec<&SiteDifference>> = BTreeMap::new();
    for site in others {
        rest.entry(site.layer).or_default().push(site);
    }
    for sites in rest.into_values() {
        let note = format!("[{}]", plural(sites.len() as u64, "smaller site"));
        let place = tree.note(&note);
        columns.node.push(tree.node([place]));
        columns.line.push(tree.line(note, None));
        add(&mut columns, &mut layers, &sites);
    }
    let processes = Processes::of(new);
    let live = live(new, &processes, &mut layers);
    let before = Processes::of(compared.baseline);
    Data {
        stacks: tree.stacks(),
        layers: layers.list,
        processes: vec![ProcessData {
            name: String::new(),
            rss: processes.rss(),
        }],
        times: times(new),
        step: 1,
        sites: columns,
        live: together(live),
        window: None,
        baseline: Some(BaselineData {
            name: name(compared.baseline_path),
            times: times(compared.baseline),
            rss: before.rss(),
            per: compared.comparison.per.unit(),
        }),
    }
}

/// Adds a row for sites of one layer.
fn add(columns: &mut Sites, layers: &mut Layers, sites: &[&SiteDifference]) {
    let Some(first) = sites.first() else { return };
    let tenths = |rate: f64| (rate * 10.0).round() / 10.0;
    columns
        .layer
        .push(layers.place(first.layer, first.is_space));
    columns.process.push(0);
    columns
        .live
        .push(sites.iter().map(|site| site.new_bytes).sum());
    columns
        .growth
        .push(tenths(sites.iter().map(|site| site.new.rate).sum()));
    columns
        .baseline_live
        .push(sites.iter().map(|site| site.baseline_bytes).sum());
    columns
        .baseline_growth
        .push(tenths(sites.iter().map(|site| site.baseline.rate).sum()));
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// The conclusion of `diff`.
pub(super) fn conclusion(out: &mut impl Write, compared: &Compared) -> io::Result<()> {
    let name = escaped(&name(compared.baseline_path));
    writeln!(
        out,
        "<section id=\"comparison\" aria-labelledby=\"comparison-title\"><h2 id=\"comparison-title\">Compared with the baseline <code>{name}</code></h2>"
    )?;
    list(out, &summary(compared.comparison)?)?;
    writeln!(out, "</section>")
}

/// The facts of both recordings, those that differ first and marked.
pub(super) fn fingerprint(
    out: &mut impl Write,
    new: &Recorded,
    compared: &Compared,
) -> io::Result<()> {
    let differences = &compared.comparison.fingerprint;
    let columns = ["fact", "baseline", "this recording"];
    let table = |caption| Table {
        caption,
        columns: &columns,
        numbers: &[],
    };
    match differences.is_empty() {
        true => writeln!(
            out,
            "<p>No recorded fact of the machines and processes differs.</p>"
        )?,
        false => table("Facts that differ, those related to growth first (correlation, not proof)")
            .write(
                out,
                differences.iter().map(|fact| {
                    let (old, new) = fact_values(fact);
                    Row {
                        cells: vec![fact.field.clone(), old, new],
                        differs: true,
                    }
                }),
            )?,
    }
    let differing: BTreeSet<&str> = differences.iter().map(|fact| fact.field.as_str()).collect();
    let mut facts: BTreeMap<&str, [BTreeSet<&str>; 2]> = BTreeMap::new();
    for (side, recorded) in [compared.baseline, new].into_iter().enumerate() {
        for fact in &recorded.facts {
            let values = facts.entry(&fact.field).or_default();
            values[side].insert(&fact.value);
        }
    }
    facts.retain(|field, _| !differing.contains(field));
    writeln!(
        out,
        "<details><summary>{} that count as equal</summary>",
        plural(facts.len() as u64, "fact")
    )?;
    let joined = |values: &BTreeSet<&str>| Vec::from_iter(values.iter().copied()).join(" | ");
    let rows = facts.iter().map(|(field, values)| Row {
        cells: vec![(*field).to_owned(), joined(&values[0]), joined(&values[1])],
        differs: false,
    });
    table("Facts that count as equal").write(out, rows)?;
    writeln!(out, "</details>")
}
