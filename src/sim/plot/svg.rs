//! Pure: no IO, no clock. A plot as a standalone SVG: no font, script or style from elsewhere.

use std::fmt::Write as _;

use super::{Plot, Ruler, Series};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 180.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 58.0;
/// A line with more points than this has no mark at each.
const MARKED: usize = 24;
/// One colour per series on light and on dark pages. They repeat when there are more: the second round is drawn hollow.
const COLOURS: [(&str, &str); 9] = [
    ("#0b62c4", "#6cb2ff"),
    ("#c2410c", "#ff9d6e"),
    ("#15803d", "#6ddb94"),
    ("#7e22ce", "#cf9bff"),
    ("#a16207", "#f2c94c"),
    ("#be123c", "#ff8fa6"),
    ("#0e7490", "#67d7e8"),
    ("#4d5562", "#b8c0cc"),
    ("#9d174d", "#f49ac8"),
];

pub(super) fn draw(plot: &Plot) -> String {
    let (x, y) = plot.rulers();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(&plot.title)
    );
    out.push_str(&style());
    let _ = writeln!(out, "<rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>");
    let _ = writeln!(out, "<text class=\"title\" x=\"{LEFT}\" y=\"24\">{}</text>", escaped(&plot.title));
    axes(plot, &x, &y, &mut out);
    for (i, s) in plot.series.iter().enumerate() {
        series(s, i, &x, &y, &mut out);
    }
    out.push_str("</svg>\n");
    out
}

fn style() -> String {
    let mut css = String::from(
        "<style>\ntext { font: 12px system-ui, sans-serif; fill: #1c2128 }\n.title { font-weight: 600; font-size: 15px }\n\
         .page { fill: #ffffff }\n.grid { stroke: #d8dee6; stroke-width: 1 }\n.axis { stroke: #57606a; stroke-width: 1 }\n\
         .line { fill: none; stroke-width: 2; stroke-linejoin: round }\n.ring { fill: none; stroke-width: 2 }\n",
    );
    for (i, (light, _)) in COLOURS.iter().enumerate() {
        let _ = writeln!(css, ".s{i} {{ stroke: {light} }} .m{i} {{ fill: {light} }}");
    }
    css.push_str(
        "@media (prefers-color-scheme: dark) {\ntext { fill: #e6edf3 }\n.page { fill: #0d1117 }\n.grid { stroke: #2b333d }\n\
         .axis { stroke: #8b949e }\n",
    );
    for (i, (_, dark)) in COLOURS.iter().enumerate() {
        let _ = writeln!(css, ".s{i} {{ stroke: {dark} }} .m{i} {{ fill: {dark} }}");
    }
    css.push_str("}\n</style>\n");
    css
}

fn across(place: f64) -> f64 {
    LEFT + place * (WIDTH - LEFT - RIGHT)
}

fn down(place: f64) -> f64 {
    HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM)
}

fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        out,
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn axes(plot: &Plot, x: &Ruler, y: &Ruler, out: &mut String) {
    for (place, label) in x.ticks() {
        let at = across(place);
        line(out, "grid", (at, down(0.0)), (at, down(1.0)));
        let _ = writeln!(
            out,
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            down(0.0) + 18.0
        );
    }
    for (place, label) in y.ticks() {
        let at = down(place);
        line(out, "grid", (across(0.0), at), (across(1.0), at));
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            across(0.0) - 8.0,
            at + 4.0
        );
    }
    line(out, "axis", (across(0.0), down(0.0)), (across(1.0), down(0.0)));
    line(out, "axis", (across(0.0), down(0.0)), (across(0.0), down(1.0)));
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        across(0.5),
        HEIGHT - 14.0,
        escaped(&plot.x.label)
    );
    let middle = down(0.5);
    let _ = writeln!(
        out,
        "<text x=\"18\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {middle:.1})\">{}</text>",
        escaped(&plot.y.label)
    );
}

fn series(s: &Series, index: usize, x: &Ruler, y: &Ruler, out: &mut String) {
    let colour = index % COLOURS.len();
    let mark = if (index / COLOURS.len()).is_multiple_of(2) {
        format!("m{colour}")
    } else {
        format!("ring s{colour}")
    };
    let points: Vec<(f64, f64)> =
        s.finite().map(|(px, py)| (across(x.place(px)), down(y.place(py)))).collect();
    if points.len() > 1 {
        let path: Vec<String> = points.iter().map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
        let _ = writeln!(out, "<polyline class=\"line s{colour}\" points=\"{}\"/>", path.join(" "));
    }
    if points.len() <= MARKED {
        for (px, py) in &points {
            let _ = writeln!(out, "<circle class=\"{mark}\" cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"4.5\"/>");
        }
    }
    let (left, at) = (WIDTH - RIGHT + 16.0, TOP + 8.0 + 20.0 * index as f64);
    let _ = writeln!(
        out,
        "<rect class=\"{mark}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" rx=\"2\"/>",
        at - 10.0
    );
    let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{at:.1}\">{}</text>", left + 18.0, escaped(&s.name));
}

/// Text within XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn tags_are_closed_and_text_is_escaped() {
        let svg = sample().svg();
        assert!(svg.contains("T_D &lt;against&gt; lambda_M") && svg.contains("promise &quot;20&quot;"));
        let mut depth = 0i32;
        for tag in svg.split('<').skip(1) {
            depth += match (tag.starts_with('/'), tag.split('>').next().is_some_and(|t| t.ends_with('/'))) {
                (true, _) => -1,
                (_, true) => 0,
                _ => 1,
            };
            assert!(depth >= 0, "{tag}");
        }
        assert_eq!(depth, 0);
    }

    #[test]
    fn it_needs_nothing_from_elsewhere_and_knows_the_dark() {
        let svg = sample().svg();
        for bad in ["<script", "@import", "url(", "href", "NaN", "inf"] {
            assert!(!svg.contains(bad), "{bad}");
        }
        assert_eq!(svg.matches("http").count(), 1, "only the name space");
        assert!(svg.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn one_point_is_a_mark_and_two_are_a_line() {
        let svg = sample().svg();
        assert_eq!(svg.matches("<polyline").count(), 1);
        assert_eq!(svg.matches("<circle").count(), 3, "the point that is no number is left out");
        assert_eq!(svg.matches("class=\"m2\"").count(), 1, "a series without points is in the legend only");
    }

    #[test]
    fn colours_that_come_again_are_hollow() {
        let mut plot = sample();
        plot.series = (0..20).map(|i| Series::new(i.to_string(), vec![(1.0, f64::from(i))])).collect();
        let svg = plot.svg();
        assert_eq!(svg.matches("<circle class=\"ring s0\"").count(), 1);
        assert_eq!(svg.matches("<circle class=\"m0\"").count(), 2, "the third round is as the first");
    }

    #[test]
    fn marks_lie_within_the_frame() {
        let svg = sample().svg();
        let mut seen = 0;
        for part in svg.split("cx=\"").skip(1) {
            let cx: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((LEFT..=WIDTH - RIGHT).contains(&cx), "{cx}");
            seen += 1;
        }
        assert_eq!(seen, 3);
    }
}
