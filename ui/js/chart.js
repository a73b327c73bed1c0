// Courses of numbers over the last minutes.

import { h, onWidth, put, s } from './dom.js';

/** Round numbers for an axis from 0 to at least `most`. */
function steps(most) {
  const rough = most / 3;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * unit).find((step) => step * 3 >= most);
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, index) => index * step);
}

const [LEFT, RIGHT] = [52, 10];

/** Minutes that are drawn: what has been heard, and at least two. */
const minutesOf = ({ times, minutes }) => Math.min(minutes, Math.max(2, Math.ceil((times.at(-1) - times[0]) / 60_000)));

function draw(width, data, at) {
  const { courses, times, unit, words, least } = data;
  const minutes = minutesOf(data);
  const [left, right, top, bottom, height] = [LEFT, RIGHT, 8, 20, 128];
  const now = times.at(-1);
  const from = now - minutes * 60_000;
  const x = (t) => left + ((t - from) / (minutes * 60_000)) * (width - left - right);
  const numbers = courses.flatMap((course) => course.points.filter((point) => point !== null));
  const marks = steps(Math.max(...numbers, least));
  const y = (value) => height - bottom - (value / marks.at(-1)) * (height - bottom - top);
  const lines = courses.map((course, index) => {
    let path = '';
    let open = false;
    course.points.forEach((point, place) => {
      if (point === null || times[place] < from) { open = false; return; }
      path += `${open ? 'L' : 'M'}${x(times[place]).toFixed(1)} ${y(point).toFixed(1)}`;
      open = true;
    });
    return s('path', { d: path || 'M0 0', class: `course c${(course.colour ?? index) % 5}` });
  });
  const grid = marks.map((mark) => [s('line', { x1: left, x2: width - right, y1: y(mark), y2: y(mark), class: mark === 0 ? 'axis' : 'grid' }), s('text', { x: left - 6, y: y(mark) + 4, 'text-anchor': 'end' }, unit(mark))]);
  const every = minutes <= 4 ? 1 : minutes <= 8 ? 2 : 5;
  const ticks = Array.from({ length: Math.floor(minutes / every) + 1 }, (_, index) => index * every).map((ago) => s('text', { x: x(now - ago * 60_000), y: height - 5, 'text-anchor': ago === 0 ? 'end' : ago === minutes ? 'start' : 'middle' }, ago === 0 ? 'now' : `−${ago} min`));
  const hair = at === null ? null : s('line', { x1: x(times[at]), x2: x(times[at]), y1: top, y2: height - bottom, class: 'hair' });
  return s('svg', { class: 'chart', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': words }, grid, ticks, lines, hair);
}

/** A chart with a title that is drawn again by `set({ courses: [{ name, points, colour }], times, unit, minutes, least })`; `least` is the least that the axis reaches. Its legend says the numbers at the pointer, else the last ones. */
export function chart(title, note) {
  const [canvas, legend] = [h('div', { class: 'canvas' }), h('p', { class: 'legend' }, 'Two looks are needed before there is a course.')];
  const element = h('section', { class: 'panel' }, h('header', {}, h('h2', {}, title), note && h('span', { class: 'note' }, note)), canvas, legend);
  let [data, width, at] = [null, 0, null];
  const show = () => {
    if (!data || !width || data.times.length === 0) return;
    const last = at ?? data.times.length - 1;
    const text = (point) => (point === null || point === undefined ? '–' : data.unit(point));
    const words = `${title}: ${data.courses.map((course) => `${course.name} ${text(course.points[last])}`).join(', ') || 'nothing yet'}`;
    put(canvas, draw(width, { ...data, words }, at));
    put(legend, data.courses.map((course, index) => h('span', {}, h('i', { class: `swatch c${(course.colour ?? index) % 5}` }), course.name, h('b', {}, text(course.points[last])))));
  };
  canvas.addEventListener('pointermove', (event) => {
    if (!data || data.times.length === 0) return;
    const share = (event.clientX - canvas.getBoundingClientRect().left - LEFT) / (width - LEFT - RIGHT);
    const t = data.times.at(-1) - (1 - share) * minutesOf(data) * 60_000;
    const near = data.times.reduce((best, time, index) => (Math.abs(time - t) < Math.abs(data.times[best] - t) ? index : best), 0);
    if (near !== at) { at = near; show(); }
  });
  canvas.addEventListener('pointerleave', () => { at = null; show(); });
  const stop = onWidth(canvas, (now) => { width = now; show(); });
  return { element, stop, set(next) { data = next; if (at !== null && at >= next.times.length) at = null; show(); } };
}
