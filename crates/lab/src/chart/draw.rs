//! Drawing, as SVG and as PNG. The font is built in, so that nothing of the system is needed and pictures are the same everywhere.

use super::axis::Axis;
use super::{Panel, Picture, Series};
use crate::experiment::ChartKind;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::path::Path;
use std::sync::Once;

/// Eight colours that people with colour blindness can tell apart (Okabe and Ito), the darkest first.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
    RGBColor(150, 120, 60),
];

const FONT: &str = "sans-serif";
const TEXT: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);
const MARGIN: i32 = 14;
const TITLE: i32 = 38;
const LEGEND_LINE: i32 = 24;

fn fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // The bytes are built in and a font; if they were not, drawing would say that there is no font.
        let _ = register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
        let _ = register_font(FONT, FontStyle::Bold, dejavu::sans::bold());
    });
}

/// Width and height of a picture in pixels.
fn size(picture: &Picture) -> (u32, u32) {
    let (columns, rows) = grid(picture.panels.len());
    let (width, height) = if picture.panels.len() == 1 { (820, 460) } else { (460, 340) };
    let width = (width * columns as i32).max(820);
    (width as u32, (height * rows as i32 + TITLE + legend_height(picture, width)) as u32)
}

fn grid(panels: usize) -> (usize, usize) {
    let columns = match panels {
        0 | 1 => 1,
        2 | 4 => 2,
        _ => 3,
    };
    (columns, panels.div_ceil(columns).max(1))
}

/// The series of all panels, each once, by name. On bars the paper's marks are all alike.
fn legend(picture: &Picture) -> Vec<(&str, &Series)> {
    let mut found: Vec<(&str, &Series)> = Vec::new();
    for series in picture.panels.iter().flat_map(|panel| &panel.series) {
        let name = if series.paper && picture.kind == ChartKind::Bar { "paper" } else { &series.name };
        if !found.iter().any(|(other, _)| *other == name) {
            found.push((name, series));
        }
    }
    found
}

/// Where each entry of the legend stands: line and left edge.
fn legend_places(picture: &Picture, width: i32) -> Vec<(i32, i32)> {
    let (mut line, mut left) = (0, MARGIN + 50);
    let mut places = Vec::new();
    for (name, _) in legend(picture) {
        let wide = 50 + 8 * name.chars().count() as i32;
        if left + wide > width && left > MARGIN + 50 {
            (line, left) = (line + 1, MARGIN + 50);
        }
        places.push((line, left));
        left += wide;
    }
    places
}

fn legend_height(picture: &Picture, width: i32) -> i32 {
    (legend_places(picture, width).last().map_or(0, |(line, _)| line + 1)) * LEGEND_LINE + MARGIN
}

/// The picture as SVG. Errors: in the library's words.
pub fn svg(picture: &Picture) -> Result<String, String> {
    let mut text = String::new();
    draw(&SVGBackend::with_string(&mut text, size(picture)).into_drawing_area(), picture)?;
    Ok(text)
}

/// The picture as PNG, in `file`. Errors: it cannot be written.
pub fn png(picture: &Picture, file: &Path) -> Result<(), String> {
    draw(&BitMapBackend::new(file, size(picture)).into_drawing_area(), picture)
}

fn draw<D: DrawingBackend>(root: &DrawingArea<D, Shift>, picture: &Picture) -> Result<(), String> {
    fonts();
    draw_on(root, picture).map_err(|error| format!("{}: cannot be drawn: {error}", picture.name))
}

type Drawn<D> = Result<(), DrawingAreaErrorKind<<D as DrawingBackend>::ErrorType>>;

fn draw_on<D: DrawingBackend>(root: &DrawingArea<D, Shift>, picture: &Picture) -> Drawn<D> {
    let (width, height) = root.dim_in_pixel();
    root.fill(&WHITE)?;
    let bold = (FONT, 19).into_font().style(FontStyle::Bold).color(&TEXT);
    root.draw(&Text::new(picture.title.clone(), (MARGIN, MARGIN), bold))?;
    let legend_top = height as i32 - legend_height(picture, width as i32);
    let body = root.margin(TITLE, height as i32 - legend_top, MARGIN, MARGIN);
    let (columns, rows) = grid(picture.panels.len());
    let values = |take: fn(&(f64, f64, f64)) -> Vec<f64>| {
        let all = picture.panels.iter().flat_map(|panel| &panel.series).flat_map(|series| &series.points);
        all.flat_map(take).collect::<Vec<f64>>()
    };
    let x = if picture.words.is_empty() {
        Axis::of(values(|point| vec![point.0]).into_iter(), picture.log.0, true, 0.0)
    } else {
        Axis::words(&picture.words)
    };
    for (area, panel) in body.split_evenly((rows, columns)).iter().zip(&picture.panels) {
        let reach = |point: &(f64, f64, f64)| if picture.log.1 { vec![point.1] } else { vec![point.1, point.1 + point.2] };
        let own: Vec<f64> = panel.series.iter().flat_map(|series| &series.points).flat_map(reach).collect();
        let y = match picture.kind {
            ChartKind::Cdf => Axis::of([0.0, 96.0].into_iter(), false, true, 0.04),
            _ => Axis::of(own.into_iter(), picture.log.1, true, 0.04),
        };
        draw_panel(area, picture, panel, &x, &y)?;
    }
    for ((name, series), (line, left)) in legend(picture).into_iter().zip(legend_places(picture, width as i32)) {
        let middle = legend_top + line * LEGEND_LINE + LEGEND_LINE / 2;
        draw_key(root, picture, series, left, middle)?;
        root.draw(&Text::new(name.to_owned(), (left + 34, middle - 7), (FONT, 14).into_font().color(&TEXT)))?;
    }
    root.present()
}

fn colour(series: &Series) -> RGBColor {
    COLOURS[series.colour % COLOURS.len()]
}

/// The sample of a series in the legend.
fn draw_key<D: DrawingBackend>(root: &DrawingArea<D, Shift>, picture: &Picture, series: &Series, left: i32, middle: i32) -> Drawn<D> {
    let colour = colour(series);
    if picture.kind == ChartKind::Bar && !series.paper {
        let style = if series.other_ground { colour.mix(0.45).filled() } else { colour.filled() };
        return root.draw(&Rectangle::new([(left + 4, middle - 6), (left + 26, middle + 6)], style));
    }
    if series.paper {
        let colour = if picture.kind == ChartKind::Bar { TEXT } else { colour };
        let corners = DIAMOND.map(|(x, y)| (left + 15 + x, middle + y));
        return root.draw(&PathElement::new(corners, colour.stroke_width(2)));
    }
    let line = [(left, middle), (left + 30, middle)];
    if series.other_ground {
        for dash in [left, left + 12, left + 24] {
            root.draw(&PathElement::new([(dash, middle), (dash + 6, middle)], colour.stroke_width(2)))?;
        }
    } else {
        root.draw(&PathElement::new(line, colour.stroke_width(2)))?;
    }
    if picture.kind == ChartKind::Line { root.draw(&Circle::new((left + 15, middle), 4, colour.filled())) } else { Ok(()) }
}

/// The paper's mark: a hollow diamond.
const DIAMOND: [(i32, i32); 5] = [(0, -7), (7, 0), (0, 7), (-7, 0), (0, -7)];

fn draw_panel<D: DrawingBackend>(area: &DrawingArea<D, Shift>, picture: &Picture, panel: &Panel, x: &Axis, y: &Axis) -> Drawn<D> {
    let mut builder = ChartBuilder::on(area);
    builder.margin(8).margin_right(18).x_label_area_size(46).y_label_area_size(66);
    if !panel.title.is_empty() {
        builder.caption(&panel.title, (FONT, 15).into_font().color(&TEXT));
    }
    let mut chart = builder.build_cartesian_2d(x.clone(), y.clone())?;
    let mut mesh = chart.configure_mesh();
    mesh.x_labels(32).y_labels(32);
    mesh.x_desc(picture.x_label.clone()).y_desc(picture.y_label.clone());
    mesh.label_style((FONT, 13).into_font().color(&TEXT)).axis_desc_style((FONT, 14).into_font().color(&TEXT));
    mesh.light_line_style(TRANSPARENT).bold_line_style(GRID).axis_style(TEXT);
    if !picture.words.is_empty() {
        mesh.disable_x_mesh();
    }
    mesh.draw()?;
    let drawn: Vec<&Series> = panel.series.iter().filter(|series| !series.paper).collect();
    let bars = drawn.len().max(1) as f64;
    let mut bar = 0.0;
    for series in &panel.series {
        let colour = colour(series);
        let places: Vec<(f64, f64)> = series.points.iter().map(|point| (x.place(point.0), y.place(point.1))).collect();
        if series.paper {
            // On bars: where the bar of the same colour is, and dark, so that it is seen in front of it.
            let own = drawn.iter().position(|other| other.colour == series.colour).unwrap_or(0) as f64;
            let shift = if picture.kind == ChartKind::Bar { 0.8 / bars * (own + 0.46) - 0.4 } else { 0.0 };
            let line = if picture.kind == ChartKind::Bar { TEXT } else { colour };
            let mark = |at: (f64, f64), _: i32, style: ShapeStyle| {
                EmptyElement::at(at) + Polygon::new(DIAMOND.to_vec(), WHITE.filled()) + PathElement::new(DIAMOND, style)
            };
            let places = places.into_iter().map(|(at, top)| (at + shift, top));
            chart.draw_series(PointSeries::of_element(places, 7, line.stroke_width(2), &mark))?;
            continue;
        }
        if picture.kind == ChartKind::Bar {
            let wide = 0.8 / bars;
            let style = if series.other_ground { colour.mix(0.45).filled() } else { colour.filled() };
            let floor = y.place(if y.log { 10_f64.powf(y.low) } else { 0.0 });
            let left = |place: f64| place - 0.4 + bar * wide;
            chart.draw_series(places.iter().map(|(at, top)| Rectangle::new([(left(*at), floor), (left(*at) + wide * 0.92, *top)], style)))?;
            let whisker = |point: &(f64, f64, f64)| {
                let middle = left(x.place(point.0)) + wide * 0.46;
                PathElement::new([(middle, y.place(point.1 - point.2)), (middle, y.place(point.1 + point.2))], TEXT.stroke_width(1))
            };
            chart.draw_series(series.points.iter().filter(|point| point.2 > 0.0).map(whisker))?;
            bar += 1.0;
            continue;
        }
        match series.other_ground {
            true => chart.draw_series(DashedLineSeries::new(places.clone(), 5, 4, colour.stroke_width(2)))?,
            false => chart.draw_series(LineSeries::new(places.clone(), colour.stroke_width(2)))?,
        };
        if picture.kind == ChartKind::Line {
            // Larger marks below smaller ones: series that lie on each other are all seen.
            let above = drawn.iter().rev().take_while(|other| other.name != series.name).count();
            let radius = 4 + above.min(5) as i32;
            chart.draw_series(places.iter().map(|at| Circle::new(*at, radius, colour.filled())))?;
            let whisker = |point: &(f64, f64, f64)| {
                let at = x.place(point.0);
                PathElement::new([(at, y.place(point.1 - point.2)), (at, y.place(point.1 + point.2))], colour.stroke_width(1))
            };
            chart.draw_series(series.points.iter().filter(|point| point.2 > 0.0).map(whisker))?;
        }
    }
    Ok(())
}
