//! Pure: no IO, no clock. A plot of characters.

use super::{Plot, Ruler};

/// One mark per series; they repeat when there are more.
const MARKS: [char; 12] = ['*', 'o', '+', 'x', '#', '@', '%', '&', '=', '~', '$', 'v'];
/// Columns left of the axis.
const MARGIN: usize = 9;

struct Canvas {
    width: usize,
    height: usize,
    cells: Vec<char>,
}

impl Canvas {
    /// `across` and `up` are places from 0 to 1.
    fn cell(&self, across: f64, up: f64) -> (usize, usize) {
        let column = (across * (self.width - 1) as f64).round() as usize;
        let row = ((1.0 - up) * (self.height - 1) as f64).round() as usize;
        (column.min(self.width - 1), row.min(self.height - 1))
    }

    fn put(&mut self, (column, row): (usize, usize), mark: char) {
        self.cells[row * self.width + column] = mark;
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), mark: char) {
        let (a, b) = (self.cell(from.0, from.1), self.cell(to.0, to.1));
        let steps = a.0.abs_diff(b.0).max(a.1.abs_diff(b.1)).max(1);
        for k in 0..=steps {
            let part = k as f64 / steps as f64;
            let cell = self.cell(from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part);
            self.put(cell, mark);
        }
    }

    fn row(&self, row: usize) -> String {
        let cells = &self.cells[row * self.width..(row + 1) * self.width];
        cells.iter().collect::<String>().trim_end().to_owned()
    }
}

pub(super) fn draw(plot: &Plot, width: usize, height: usize) -> String {
    let (x, y) = plot.rulers();
    let mut canvas = Canvas { width, height, cells: vec![' '; width * height] };
    for (i, s) in plot.series.iter().enumerate() {
        let mark = MARKS[i % MARKS.len()];
        let mut before = None;
        for (px, py) in s.finite() {
            let here = (x.place(px), y.place(py));
            canvas.line(before.unwrap_or(here), here, mark);
            before = Some(here);
        }
    }
    let mut out = format!("{}\n{}\n", plot.title, plot.y.label);
    for row in 0..height {
        let label = tick_in_row(&y, row, &canvas).unwrap_or_default();
        let axis = if label.is_empty() { '|' } else { '+' };
        let line = format!("{label:>MARGIN$} {axis}{}", canvas.row(row));
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push_str(&format!("{:>MARGIN$} +{}\n", "", "-".repeat(width)));
    out.push_str(&x_labels(&x, &canvas));
    out.push_str(&format!("{:>MARGIN$}  {:>width$}\n", "", plot.x.label));
    for (i, s) in plot.series.iter().enumerate() {
        out.push_str(&format!("{:>MARGIN$}  {} {}\n", "", MARKS[i % MARKS.len()], s.name));
    }
    out
}

fn tick_in_row(y: &Ruler, row: usize, canvas: &Canvas) -> Option<String> {
    y.ticks().into_iter().find(|(place, _)| canvas.cell(0.0, *place).1 == row).map(|t| t.1)
}

/// Labels under their places, as many as fit.
fn x_labels(x: &Ruler, canvas: &Canvas) -> String {
    let mut line = " ".repeat(MARGIN + 2);
    let begin = line.len();
    for (place, label) in x.ticks() {
        let column = begin + canvas.cell(place, 0.0).0;
        let from = (column + 1).saturating_sub(label.len().div_ceil(2)).max(begin);
        if from > line.len() || line.len() == begin {
            line.push_str(&" ".repeat(from.saturating_sub(line.len())));
            line.push_str(&label);
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::super::{Axis, Series};
    use super::*;

    #[test]
    fn marks_stand_where_the_values_are() {
        let plot = Plot {
            title: "t".into(),
            x: Axis::linear("x"),
            y: Axis::linear("y"),
            series: vec![Series::new("low", vec![(0.0, 0.0)]), Series::new("high", vec![(10.0, 100.0)])],
        };
        let text = plot.text(41, 11);
        let rows: Vec<&str> = text.lines().skip(2).take(11).collect();
        assert!(rows[0].ends_with('o') && rows[0].starts_with("      100 +"), "{text}");
        assert_eq!(rows[0].chars().count(), MARGIN + 2 + 41);
        assert_eq!(rows[10], "        0 +*", "{text}");
        assert!(text.contains("* low") && text.contains("o high"));
    }

    #[test]
    fn a_line_has_no_holes() {
        let plot = Plot {
            title: "t".into(),
            x: Axis::linear("x"),
            y: Axis::linear("y"),
            series: vec![Series::new("s", vec![(0.0, 0.0), (10.0, 10.0)])],
        };
        let text = plot.text(30, 30);
        let marked = text.lines().skip(2).take(30).filter(|l| l.contains('*')).count();
        assert_eq!(marked, 30, "{text}");
    }

    #[test]
    fn no_line_is_wider_than_the_plot_and_its_margin() {
        let text = sample().text(60, 12);
        assert!(text.lines().all(|l| l.chars().count() <= 60 + MARGIN + 4), "{text}");
        assert!(text.contains("phi, 8") && text.contains("false FAILED per hour"));
        assert_eq!(sample().text(1, 1).lines().count(), 2 + 5 + 3 + 3, "kept to the least size");
    }
}
