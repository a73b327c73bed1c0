// The figures of an experiment: lines, bars, distributions. The points are those that the command line draws.

import { h, onWidth, put, s, table } from './dom.js';

/** A number with three digits that say something. */
export function figures(value) {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1e6) return `${(value / 1e6).toPrecision(3)}M`;
  if (size >= 10_000) return `${Math.round(value / 1000)}k`;
  if (size >= 100 || value === Math.round(value)) return String(Math.round(value));
  return String(Number(value.toPrecision(3)));
}

/** Round marks from `low` to `high`; with `log` powers of ten. */
function marks(low, high, log, most) {
  if (log) {
    const [from, to] = [Math.floor(Math.log10(low)), Math.max(Math.ceil(Math.log10(high)), Math.floor(Math.log10(low)) + 1)];
    return Array.from({ length: to - from + 1 }, (_, index) => 10 ** (from + index));
  }
  const rough = (high - low || Math.abs(high) || 1) / most;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((times) => times * unit).find((step) => step >= rough * 0.999);
  const from = Math.floor(low / step + 1e-9);
  const to = Math.max(from + 1, Math.ceil(high / step - 1e-9));
  return Array.from({ length: to - from + 1 }, (_, index) => (from + index) * step);
}

/** How series are told apart beside their colour. */
const DASHES = ['', '7 4', '2 3', '9 3 2 3'];

function drawPanel(picture, panel, width, series) {
  const [left, right, top, bottom, height] = [54, 20, 12, picture.words.length > 0 ? 44 : 40, 236];
  const [logX, logY] = [picture.log[0] && picture.words.length === 0, picture.log[1] && picture.kind !== 'cdf'];
  const points = panel.series.flatMap((one) => one.points).filter(([x, y]) => (!logX || x > 0) && (!logY || y > 0));
  if (points.length === 0) return h('div', {}, panel.title && h('h3', {}, panel.title), h('p', { class: 'note' }, 'Nothing to draw.'));
  const bars = picture.kind === 'bar';
  const ys = points.flatMap(([, y, margin]) => (logY ? [y] : [y, y + margin]));
  const low = logY ? Math.min(...ys) : Math.min(0, ...ys);
  const rows = picture.kind === 'cdf' ? [0, 25, 50, 75, 100] : marks(low, Math.max(...ys), logY, 4);
  const up = (value) => (logY ? Math.log10(value) : value);
  const y = (value) => height - bottom - ((up(value) - up(rows[0])) / (up(rows.at(-1)) - up(rows[0]) || 1)) * (height - bottom - top);
  const ground = y(logY ? rows[0] : 0);
  const xs = points.map(([x]) => x);
  const words = picture.words;
  const columns = words.length > 0 ? words.map((_, index) => index) : marks(logX ? Math.min(...xs) : Math.min(bars || picture.kind === 'cdf' ? 0 : Infinity, ...xs), Math.max(...xs), logX, width < 420 ? 3 : 6);
  const along = (value) => (logX ? Math.log10(value) : value);
  const [first, last] = words.length > 0 ? [-0.5, words.length - 0.5] : [along(columns[0]), along(columns.at(-1))];
  const x = (value) => left + ((along(value) - first) / (last - first || 1)) * (width - left - right);
  const grid = rows.map((value) => [s('line', { x1: left, x2: width - right, y1: y(value), y2: y(value), class: value === rows[0] ? 'axis' : 'grid' }), s('text', { x: left - 6, y: y(value) + 4, 'text-anchor': 'end' }, figures(value))]);
  const room = Math.max(3, Math.floor((width - left - right) / Math.max(1, words.length) / 6.4));
  // Long words stand at two heights.
  const staggered = words.some((word) => word.length > room);
  const ticks = columns.map((value, index) => s('text', { x: x(value), y: height - bottom + 16 + (staggered && index % 2 ? 12 : 0), 'text-anchor': 'middle' }, words.length > 0 ? (words[index].length > room * (staggered ? 2 : 1) ? `${words[index].slice(0, Math.max(2, room * (staggered ? 2 : 1) - 1))}…` : words[index]) : figures(value)));
  const drawn = panel.series.map((one) => {
    const index = series.indexOf(one.name);
    const kind = `c${one.colour % 5}`;
    const inside = one.points.filter(([px, py]) => (!logX || px > 0) && (!logY || py > 0));
    const whisker = ([px, py, margin], at) => margin > 0 && s('line', { x1: at ?? x(px), x2: at ?? x(px), y1: y(Math.max(rows[0], py - margin)), y2: y(Math.min(rows.at(-1), py + margin)), class: `whisker ${kind}` });
    if (one.paper) return inside.map(([px, py]) => s('path', { d: `M${x(px)} ${y(py) - 6}l6 6l-6 6l-6 -6z`, class: `paper ${kind}` }));
    if (bars) {
      const others = panel.series.filter((other) => !other.paper);
      const wide = Math.min(46, ((width - left - right) / (words.length || 1)) * 0.76 / others.length);
      const shift = (others.indexOf(one) - (others.length - 1) / 2) * wide;
      return inside.map((point) => [s('rect', { x: x(point[0]) + shift - wide / 2 + 1, width: Math.max(1, wide - 2), y: Math.min(y(point[1]), ground), height: Math.max(1, Math.abs(ground - y(point[1]))), class: `column ${kind}`, 'fill-opacity': index >= 5 ? 0.55 : null }, s('title', {}, `${one.name}: ${figures(point[1])}`)), whisker(point, x(point[0]) + shift)]);
    }
    const path = inside.map(([px, py], place) => `${place ? 'L' : 'M'}${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join('');
    const dots = inside.length <= 30 && inside.map((point) => [s('circle', { cx: x(point[0]), cy: y(point[1]), r: 2.8, class: `mark ${kind}` }, s('title', {}, `${one.name}: ${figures(point[0])}, ${figures(point[1])}`)), whisker(point)]);
    return [s('path', { d: path || 'M0 0', class: `course ${kind}`, 'stroke-dasharray': DASHES[Math.floor(one.colour / 5) % DASHES.length] || null }), dots];
  });
  const said = panel.series.map((one) => `${one.name} from ${figures(one.points[0]?.[1])} to ${figures(one.points.at(-1)?.[1])}`).join('; ');
  return h('div', {}, panel.title && h('h3', {}, panel.title),
    s('svg', { class: 'chart figure', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': `${picture.title}${panel.title ? `, ${panel.title}` : ''}: ${said}` }, grid, ticks, drawn,
      picture.x_label && s('text', { x: (left + width - right) / 2, y: height - 4, 'text-anchor': 'middle', class: 'title' }, picture.x_label)));
}

function points(picture) {
  const place = (value) => picture.words[value] ?? figures(value);
  const rows = picture.panels.flatMap((panel) => panel.series.flatMap((one) => one.points.filter((_, index) => picture.kind !== 'cdf' || [50, 90, 99, 100].includes(Math.round(one.points[index][1]))).map(([x, y, margin]) =>
    (picture.kind === 'cdf' ? [panel.title || '–', one.name, [`${Math.round(y)} %`, 'number'], [figures(x), 'number']] : [panel.title || '–', one.name, [place(x), 'number'], [margin > 0 ? `${figures(y)} ± ${figures(margin)}` : figures(y), 'number']]))));
  return table(`The numbers of ${picture.title}`, ['panel', 'series', [picture.kind === 'cdf' ? 'share' : picture.x_label || 'of', 'number'], [picture.kind === 'cdf' ? picture.x_label : picture.y_label, 'number']], rows.slice(0, 400));
}

/** A picture with its legend and its numbers; and how to stop watching its width. */
export function figure(picture) {
  const canvas = h('div', { class: 'panels' });
  const names = [...new Map(picture.panels.flatMap((panel) => panel.series).map((one) => [one.name, one])).values()];
  const legend = h('p', { class: 'legend' }, names.map((one) => h('span', {}, h('i', { class: `swatch c${one.colour % 5}${one.paper ? ' hollow' : ''}${one.colour >= 5 ? ' second' : ''}` }), one.name)));
  const numbers = h('details', {}, h('summary', {}, 'Numbers'));
  numbers.addEventListener('toggle', () => { if (numbers.open && numbers.children.length === 1) numbers.append(points(picture)); });
  const element = h('section', { class: 'panel figurebox' }, h('header', {}, h('h2', {}, picture.title), h('span', { class: 'note' }, picture.y_label)), canvas, legend, numbers);
  const stop = onWidth(canvas, (width) => {
    const beside = Math.max(1, Math.min(picture.panels.length, Math.floor(width / 300)));
    const each = Math.floor((width - (beside - 1) * 12) / beside);
    put(canvas, picture.panels.map((panel) => drawPanel(picture, panel, each, names.map((one) => one.name))));
  });
  return [element, stop];
}
