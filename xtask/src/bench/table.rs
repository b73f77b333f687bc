//! A table of measurements, as text and as JSON. Measures nothing.

use serde_json::{Map, Value, json};

/// One column: its name in JSON, its heading in text, and the decimals that text shows.
#[derive(Clone, Copy)]
pub(super) struct Column {
    key: &'static str,
    heading: &'static str,
    decimals: usize,
}

pub(super) const fn column(key: &'static str, heading: &'static str, decimals: usize) -> Column {
    Column {
        key,
        heading,
        decimals,
    }
}

/// A row: its name, a figure for each column, and a remark, such as why there are no figures.
struct Row {
    name: String,
    figures: Vec<Option<f64>>,
    remark: Option<String>,
}

pub(super) struct Table {
    /// A word for JSON, and for text a line with the unit.
    name: String,
    title: String,
    columns: Vec<Column>,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Table {
    pub(super) fn new(name: &str, title: impl Into<String>, columns: &[Column]) -> Table {
        Table {
            name: name.to_owned(),
            title: title.into(),
            columns: columns.to_vec(),
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// `figures` are those of the columns, in order; columns without one are empty.
    pub(super) fn row(&mut self, name: impl Into<String>, figures: &[Option<f64>]) {
        self.push(name.into(), figures.to_vec(), None);
    }

    /// A row that has a remark in place of figures.
    pub(super) fn remark(&mut self, name: impl Into<String>, remark: impl Into<String>) {
        self.push(name.into(), Vec::new(), Some(remark.into()));
    }

    fn push(&mut self, name: String, mut figures: Vec<Option<f64>>, remark: Option<String>) {
        // A ratio to nothing is no figure, and JSON has no word for it.
        for figure in &mut figures {
            *figure = figure.filter(|value| value.is_finite());
        }
        figures.resize(self.columns.len(), None);
        self.rows.push(Row {
            name,
            figures,
            remark,
        });
    }

    /// A line below the table.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// The table, with aligned columns, and an empty line after it.
    pub(super) fn text(&self) -> String {
        let cells: Vec<Vec<String>> = self.rows.iter().map(|row| self.cells(row)).collect();
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                let cells = cells.iter().filter_map(|row| row.get(index));
                cells
                    .map(|cell| width(cell))
                    .max()
                    .unwrap_or(0)
                    .max(width(column.heading))
            })
            .collect();
        let named = self.rows.iter().filter(|row| row.remark.is_none());
        let first = named.map(|row| width(&row.name)).max().unwrap_or(0);
        let line = |name: &str, cells: &mut dyn Iterator<Item = &str>| {
            let mut line = format!("  {name}{}", " ".repeat(first.saturating_sub(width(name))));
            for (cell, wide) in cells.zip(&widths) {
                line += &" ".repeat(2 + wide - width(cell));
                line += cell;
            }
            line.trim_end().to_owned() + "\n"
        };
        let mut text = format!("{}\n", self.title);
        if !self.rows.is_empty() {
            text += &line("", &mut self.columns.iter().map(|column| column.heading));
        }
        for (row, cells) in self.rows.iter().zip(&cells) {
            text += &match &row.remark {
                Some(remark) => line(&format!("{}: {remark}", row.name), &mut std::iter::empty()),
                None => line(&row.name, &mut cells.iter().map(String::as_str)),
            };
        }
        for note in &self.notes {
            text += &format!("  {note}\n");
        }
        text + "\n"
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        if row.remark.is_some() {
            return Vec::new();
        }
        row.figures
            .iter()
            .zip(&self.columns)
            .map(|(figure, column)| match figure {
                Some(value) => grouped(*value, column.decimals),
                None => "-".to_owned(),
            })
            .collect()
    }

    pub(super) fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let mut object = Map::new();
                object.insert("name".into(), json!(row.name));
                match &row.remark {
                    Some(remark) => {
                        object.insert("remark".into(), json!(remark));
                    }
                    None => {
                        for (column, figure) in self.columns.iter().zip(&row.figures) {
                            object.insert(column.key.into(), json!(figure));
                        }
                    }
                }
                Value::Object(object)
            })
            .collect();
        json!({"name": self.name, "title": self.title, "rows": rows, "notes": self.notes})
    }
}

/// Characters, all of which take one place in a terminal here.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// A number with commas between its thousands.
fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => ("-", text),
        None => ("", &*text),
    };
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        let columns = [column("median", "ns", 1), column("ratio", "× untraced", 2)];
        let mut table = Table::new("pairs", "pairs, ns per pair", &columns);
        table.row("untraced", &[Some(14.04), None]);
        table.row("memtrace record", &[Some(3296.0), Some(234.757)]);
        table.remark("heaptrack", "not installed");
        table.note("2 rounds");
        table
    }

    #[test]
    fn columns_are_aligned_and_remarks_widen_none() {
        let expected = "\
pairs, ns per pair
                        ns  × untraced
  untraced            14.0           -
  memtrace record  3,296.0      234.76
  heaptrack: not installed
  2 rounds

";
        assert_eq!(example().text(), expected);
    }

    #[test]
    fn json_has_unrounded_figures_and_null_for_missing_ones() {
        let expected = json!({
            "name": "pairs",
            "title": "pairs, ns per pair",
            "rows": [
                {"name": "untraced", "median": 14.04, "ratio": null},
                {"name": "memtrace record", "median": 3296.0, "ratio": 234.757},
                {"name": "heaptrack", "remark": "not installed"},
            ],
            "notes": ["2 rounds"],
        });
        assert_eq!(example().json(), expected);
    }

    #[test]
    fn a_ratio_to_nothing_is_missing() {
        let mut table = Table::new("t", "t", &[column("ratio", "×", 1)]);
        table.row("a", &[Some(1.0 / 0.0)]);
        assert_eq!(table.json()["rows"][0]["ratio"], Value::Null);
        assert!(table.text().ends_with("  a  -\n\n"), "{}", table.text());
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(grouped(1234567.891, 1), "1,234,567.9");
        assert_eq!(grouped(999.96, 1), "1,000.0");
        assert_eq!(grouped(-1234.0, 0), "-1,234");
        assert_eq!(grouped(12.0, 0), "12");
    }
}
