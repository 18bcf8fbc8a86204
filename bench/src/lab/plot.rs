//! Diagrams as SVG, to stand inside a page.

use super::experiment::Shape;
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

const SIZE: (u32, u32) = (820, 380);
/// Colours that the colour-blind can tell apart (Okabe and Ito), used in turn by [`Curve::colour`].
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
    RGBColor(150, 130, 0),
];

/// A curve, or the bars of one colour.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) origin: Origin,
    pub(crate) colour: usize,
}

impl Curve {
    fn rgb(&self) -> RGBColor {
        COLOURS[self.colour % COLOURS.len()]
    }

    /// The colour, for CSS.
    pub(crate) fn css(&self) -> String {
        let RGBColor(red, green, blue) = self.rgb();
        format!("#{red:02x}{green:02x}{blue:02x}")
    }
}

/// The source of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Measured,
    /// A paper: drawn thin.
    Paper,
}

/// The texts of a diagram.
pub(crate) struct Texts<'a> {
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    /// By x, for bars.
    pub(crate) labels: &'a [(f64, String)],
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws the curves; an empty text if there is nothing to draw.
pub(crate) fn draw(shape: Shape, texts: &Texts<'_>, curves: &[Curve]) -> Result<String> {
    if curves.iter().all(|curve| curve.points.is_empty()) {
        return Ok(String::new());
    }
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    let drawn = match shape {
        Shape::Lines => lines(&area, texts, curves),
        Shape::Bars => bars(&area, texts, curves),
    };
    drawn.and_then(|()| area.present().map_err(failed))?;
    drop(area);
    Ok(svg)
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("a diagram could not be drawn: {error}")
}

fn highest(curves: &[Curve]) -> f64 {
    let values = curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
    values.fold(0.0, f64::max).max(f64::MIN_POSITIVE)
}

fn chart<'a>(area: &Area<'a>, from: f64, to: f64, top: f64) -> Result<Chart<'a>> {
    area.fill(&WHITE).map_err(failed)?;
    ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(from..to, 0.0..top * 1.08)
        .map_err(failed)
}

fn lines(area: &Area<'_>, texts: &Texts<'_>, curves: &[Curve]) -> Result<()> {
    let xs = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.0);
    let (from, to) = (xs().fold(f64::MAX, f64::min), xs().fold(f64::MIN, f64::max));
    let to = if to > from { to } else { from + 1.0 };
    let mut chart = chart(area, from, to, highest(curves))?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc(texts.x).y_desc(texts.y).light_line_style(WHITE).y_label_formatter(&number);
    mesh.x_label_formatter(&number).draw().map_err(failed)?;
    for curve in curves {
        let width = match curve.origin {
            Origin::Measured => 3,
            Origin::Paper => 1,
        };
        let style = ShapeStyle { color: curve.rgb().to_rgba(), filled: true, stroke_width: width };
        chart.draw_series(LineSeries::new(curve.points.iter().copied(), style)).map_err(failed)?;
        let marks = curve.points.iter().map(|&point| Circle::new(point, 3, style));
        chart.draw_series(marks).map_err(failed)?;
    }
    Ok(())
}

fn bars(area: &Area<'_>, texts: &Texts<'_>, curves: &[Curve]) -> Result<()> {
    // Groups stand at 0, 1, 2 and so on, whatever their x is.
    let place = |x: f64| texts.labels.iter().position(|label| label.0 == x);
    let groups = u32::try_from(texts.labels.len())?;
    let mut chart = chart(area, -0.5, f64::from(groups) - 0.5, highest(curves))?;
    let label = |x: &f64| {
        let near = (0..groups).find(|&group| (f64::from(group) - x).abs() < 0.01);
        near.map_or_else(String::new, |group| texts.labels[group as usize].1.clone())
    };
    let mut mesh = chart.configure_mesh();
    mesh.x_labels(2 * texts.labels.len() + 1).x_label_formatter(&label).disable_x_mesh();
    mesh.x_desc(texts.x).y_desc(texts.y).light_line_style(WHITE).y_label_formatter(&number);
    mesh.draw().map_err(failed)?;
    let width = 0.8 / f64::from(u32::try_from(curves.len())?);
    for (index, curve) in (0_u32..).zip(curves) {
        let style = curve.rgb().filled();
        let left = f64::from(index) * width - 0.4;
        let bar = |&(x, y): &(f64, f64)| {
            let group = f64::from(u32::try_from(place(x)?).ok()?);
            Some(Rectangle::new([(group + left, 0.0), (group + left + width * 0.9, y)], style))
        };
        chart.draw_series(curve.points.iter().filter_map(bar)).map_err(failed)?;
    }
    Ok(())
}

/// A number with as many digits as a reader wants.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form that the axes take")]
pub(crate) fn number(value: &f64) -> String {
    match value.abs() {
        large if large >= 100.0 || large == 0.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(colour: usize, points: &[(f64, f64)]) -> Curve {
        let origin = Origin::Measured;
        Curve { name: String::new(), points: points.to_vec(), origin, colour }
    }

    #[test]
    fn every_curve_is_drawn_in_its_colour() {
        let labels = [(10.0, "10 KB".to_owned()), (60.0, "60 KB".to_owned())];
        let texts = Texts { x: "size", y: "rate", labels: &labels };
        let curves = [curve(0, &[(10.0, 1.0), (60.0, 2.0)]), curve(9, &[(10.0, 3.0)])];
        for shape in [Shape::Lines, Shape::Bars] {
            let svg = draw(shape, &texts, &curves).expect("drawn");
            assert!(svg.starts_with("<svg"), "{svg}");
            assert!(svg.contains("#0072B2") && svg.contains("#D55E00"), "{svg}");
        }
        let bars = draw(Shape::Bars, &texts, &curves).expect("drawn");
        assert!(bars.contains("60 KB"), "{bars}");
    }

    #[test]
    fn one_point_or_none_is_no_failure() {
        let texts = Texts { x: "", y: "", labels: &[] };
        assert_eq!(draw(Shape::Lines, &texts, &[]).expect("nothing"), "");
        assert!(draw(Shape::Lines, &texts, &[curve(0, &[(0.0, 0.0)])]).is_ok());
    }
}
