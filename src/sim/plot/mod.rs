//! Pure: no IO, no clock. Plots of a few series of points: for a terminal, as CSV, as a standalone SVG.
//!
//! A series of one point is drawn as a mark, a longer one as a line through its points in the order given. Points that
//! are not finite are left out. On a logarithmic axis a value of zero or less stands at the axis's end, labelled 0.

mod scale;
mod svg;
mod text;

use scale::Ruler;
pub use scale::Scale;

/// One line, or one mark.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points (x, y) in the order in which the line passes through them.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A series of that name.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), points }
    }

    fn finite(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
    }
}

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// How values become places.
    pub scale: Scale,
}

impl Axis {
    /// Equal steps for equal differences.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear }
    }

    /// Equal steps for equal ratios.
    pub fn log(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Log }
    }
}

/// A plot, ready to be drawn in any of the three ways.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Title above it.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What it shows; drawn in this order.
    pub series: Vec<Series>,
}

impl Plot {
    /// For a terminal: `width` columns and `height` rows of plot, axes and legend around it. Both are kept between 20 and
    /// 400.
    pub fn text(&self, width: usize, height: usize) -> String {
        text::draw(self, width.clamp(20, 400), height.clamp(5, 400))
    }

    /// One row per point: series, x, y. Every point of the series, finite or not.
    pub fn csv(&self) -> String {
        let mut out = format!("series,{},{}\n", quoted(&self.x.label), quoted(&self.y.label));
        for s in &self.series {
            let name = quoted(&s.name);
            for (x, y) in &s.points {
                out.push_str(&format!("{name},{x},{y}\n"));
            }
        }
        out
    }

    /// A standalone SVG that needs no font or script from elsewhere and reads well on light and dark pages.
    pub fn svg(&self) -> String {
        svg::draw(self)
    }

    fn rulers(&self) -> (Ruler, Ruler) {
        let all = || self.series.iter().flat_map(|s| s.finite());
        (Ruler::over(all().map(|p| p.0), self.x.scale), Ruler::over(all().map(|p| p.1), self.y.scale))
    }
}

/// A CSV field: in quotes where it holds a separator.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn sample() -> Plot {
        Plot {
            title: "T_D <against> lambda_M".into(),
            x: Axis::log("false FAILED per hour"),
            y: Axis::linear("T_D p50, ms"),
            series: vec![
                Series::new("promise \"20\"", vec![(0.0, 24.0)]),
                Series::new("phi, 8", vec![(10.0, 59.0), (1000.0, 30.0), (f64::NAN, 3.0)]),
                Series::new("none", vec![]),
            ],
        }
    }

    #[test]
    fn csv_has_every_point_and_quotes_what_must_be() {
        let csv = sample().csv();
        let lines: Vec<_> = csv.lines().collect();
        assert_eq!(lines[0], "series,false FAILED per hour,\"T_D p50, ms\"");
        assert_eq!(lines[1], "\"promise \"\"20\"\"\",0,24");
        assert_eq!(lines[3], "\"phi, 8\",1000,30");
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn nothing_to_draw_is_drawn() {
        for scale in [Scale::Linear, Scale::Log] {
            let axis = Axis { label: "n".into(), scale };
            let empty = Plot { title: String::new(), x: axis.clone(), y: axis, series: Vec::new() };
            assert!(empty.text(40, 10).lines().count() >= 12);
            assert!(empty.svg().ends_with("</svg>\n"));
            assert_eq!(empty.csv(), "series,n,n\n");
        }
    }
}
