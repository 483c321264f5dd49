//! The plot: bytes held over connections, both by powers of ten.

use std::fmt::Write;

use super::scenario::{EMSS, Framing, Outcome};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 48.0;
/// Powers of ten on the axes: connections, octets.
const CONNECTIONS: (f64, f64) = (1.0, 4.0);
const OCTETS: (f64, f64) = (3.0, 8.0);

/// Returns the horizontal position of a power of ten.
fn x(power: f64) -> f64 {
    LEFT + (power - CONNECTIONS.0) / (CONNECTIONS.1 - CONNECTIONS.0) * (WIDTH - LEFT - RIGHT)
}

/// Returns the vertical position of a power of ten. Values below the range of the axis, zero included, are
/// drawn on the axis.
fn y(power: f64) -> f64 {
    HEIGHT - BOTTOM - (power.max(OCTETS.0) - OCTETS.0) / (OCTETS.1 - OCTETS.0) * (HEIGHT - TOP - BOTTOM)
}

const fn colour(framing: Framing) -> &'static str {
    match framing {
        Framing::AlignedMarkers => "#1b7837",
        Framing::Aligned => "#2166ac",
        Framing::Unaligned => "#b2182b",
    }
}

/// Returns a plot of `outcomes`, and beside them the values that the document expects of FPDUs that are not
/// aligned.
pub fn svg(outcomes: &[Outcome]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    axes(&mut svg);
    let expected = [CONNECTIONS.0, CONNECTIONS.1].map(|power| (x(power), y(power + (EMSS as f64).log10())));
    line(&mut svg, &expected, "#888", "4 4");
    label(&mut svg, expected[1].0, expected[1].1, -14.0, "EMSS x connections (App. B)", "#888");
    for framing in Framing::ALL {
        let points: Vec<_> = outcomes
            .iter()
            .filter(|outcome| outcome.framing == framing)
            .map(|outcome| {
                let octets = (outcome.held_bytes_peak as f64).max(1.0);
                (x(f64::from(outcome.connections).log10()), y(octets.log10()))
            })
            .collect();
        line(&mut svg, &points, colour(framing), "none");
        for (x, y) in &points {
            text(
                &mut svg,
                format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\"/>", colour(framing)),
            );
        }
        if let Some(last) = points.last() {
            label(&mut svg, last.0, last.1, 4.0, framing.name(), colour(framing));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn axes(svg: &mut String) {
    for power in OCTETS.0 as i32..=OCTETS.1 as i32 {
        let at = y(f64::from(power));
        let name = ["1 kB", "10 kB", "100 kB", "1 MB", "10 MB", "100 MB"][(power - OCTETS.0 as i32) as usize];
        line(svg, &[(LEFT, at), (WIDTH - RIGHT, at)], "#ddd", "none");
        text(
            svg,
            format_args!(
                "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
                LEFT - 8.0,
                at + 4.0
            ),
        );
    }
    for power in CONNECTIONS.0 as i32..=CONNECTIONS.1 as i32 {
        let at = x(f64::from(power));
        line(svg, &[(at, TOP), (at, HEIGHT - BOTTOM)], "#ddd", "none");
        let number = 10_u32.pow(power as u32);
        text(
            svg,
            format_args!(
                "<text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{number}</text>",
                HEIGHT - BOTTOM + 18.0
            ),
        );
    }
    let (middle, bottom) = (x(f64::midpoint(CONNECTIONS.0, CONNECTIONS.1)), HEIGHT - 10.0);
    text(
        svg,
        format_args!("<text x=\"{middle:.1}\" y=\"{bottom:.0}\" text-anchor=\"middle\">connections</text>"),
    );
    text(svg, format_args!("<text x=\"8\" y=\"14\">bytes held for reassembly, at most</text>"));
}

fn line(svg: &mut String, points: &[(f64, f64)], colour: &str, dashes: &str) {
    let points: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    text(
        svg,
        format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" \
             stroke-dasharray=\"{dashes}\"/>",
            points.join(" ")
        ),
    );
}

fn label(svg: &mut String, x: f64, y: f64, up: f64, name: &str, colour: &str) {
    text(svg, format_args!("<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>", x + 8.0, y + up));
}

fn text(svg: &mut String, line: std::fmt::Arguments<'_>) {
    // A string takes whatever is written to it.
    let _ = writeln!(svg, "{line}");
}
