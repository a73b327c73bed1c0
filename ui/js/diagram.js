// A key's versions as a space-time diagram: a lane for each data center, time to the right, an arrow from each write to where it has arrived.

import { s } from './dom.js';
import { span, time } from './format.js';

/** Longer gaps between two events are drawn as `cap`, shorter ones as `least`, so that what happens remains visible. */
export function scaleOf(times, cap, from, to, least = 0) {
  const sorted = [...new Set(times)].sort((a, b) => a - b);
  const at = new Map();
  const breaks = [];
  let drawn = 0;
  sorted.forEach((t, index) => {
    if (index > 0) {
      const gap = t - sorted[index - 1];
      if (gap > cap) breaks.push([sorted[index - 1], t]);
      drawn += Math.max(least, Math.min(gap, cap));
    }
    at.set(t, drawn);
  });
  const total = drawn || 1;
  return { x: (t) => from + (at.get(t) / total) * (to - from), breaks };
}

/** The line from (x1, y1) to (x2, y2), up to a part of the way. */
const part = ([x1, y1], [x2, y2], share) => [x1 + (x2 - x1) * share, y1 + (y2 - y1) * share];

/** When a version arrived at a data center: between two looks of this page, as early as its way allows; or reckoned from the way alone, which the second value says. */
function arrival(version, name, oneWay) {
  const place = version.places[name];
  const reckoned = version.t + (oneWay(version.origin, name) ?? 0);
  if (place.arrived) return [Math.min(place.arrived, Math.max(place.after, reckoned)), false];
  return [place.shown ? Math.min(reckoned, place.shown) : reckoned, true];
}

const HERE = ['visible', 'older', 'hidden'];

/**
 * `model`: names of the data centers; keys with label and versions, each with id, time, origin, what it needs, and its state by data center.
 * `ways`: oneWay(from, to) in ms or null, and cut(from, to).
 */
export function diagram(model, ways, width) {
  const { names, keys } = model;
  const narrow = width < 620;
  const left = narrow ? 6 : 196;
  const right = narrow ? 14 : 26;
  const head = 14;
  const lane = narrow ? 66 + 17 * keys.length : Math.max(74, 38 + 17 * keys.length);
  const laneY = (name) => head + names.indexOf(name) * lane + (narrow ? lane - 18 : lane * 0.58);
  const height = head + names.length * lane + 34;
  const end = width - right;

  // Several keys stand beside each other on one lane.
  const versions = keys.flatMap((key, index) => key.versions.map((version) => ({ ...version, key, kind: `k${index}`, off: (index - (keys.length - 1) / 2) * 5 })));
  const times = [];
  let longest = 50;
  for (const version of versions) {
    times.push(version.t);
    for (const name of names) {
      const place = version.places[name];
      if (name === version.origin || !HERE.includes(place.state)) continue;
      const [t] = arrival(version, name, ways.oneWay);
      longest = Math.max(longest, t - version.t < 2000 ? t - version.t : 0);
      times.push(t);
      if (place.shown) times.push(place.shown);
    }
  }
  // A little of the present after the last event: that is where states stand.
  const last = Math.max(...times, 0);
  const shownEnd = Math.min(Math.max(model.now, last + longest * 0.7), last + longest * 2.2);
  const scale = scaleOf([...times, shownEnd], longest * 2.5, left + (narrow ? 18 : 34), end);
  const x = scale.x;

  const out = { lanes: [], ways: [], needs: [], dots: [], labels: [] };
  for (const name of names) {
    const y = laneY(name);
    out.lanes.push(s('line', { x1: left, x2: end + 8, y1: y, y2: y, class: 'lane' }));
    const top = head + names.indexOf(name) * lane + 14;
    out.labels.push(s('text', { x: narrow ? 4 : 4, y: top + 4, class: 'lanename' }, name));
    keys.forEach((key, index) => {
      const [words, kind] = model.states[name][index];
      const label = key.label.length > 16 ? `${key.label.slice(0, 15)}…` : key.label;
      out.labels.push(s('text', { x: 4, y: top + 21 + index * 17, class: `state ${kind}` }, s('tspan', { class: `label k${index}` }, label), ` ${words}`));
    });
  }
  for (const [before, after] of scale.breaks) {
    const middle = (x(before) + x(after)) / 2;
    const y = height - 24;
    out.lanes.push(s('path', { d: `M${middle - 5} ${y + 5} l4 -10 M${middle + 1} ${y + 5} l4 -10`, class: 'breakmark' }), s('title', {}, `${span(after - before)} in which nothing was written`));
  }

  // The write's own label, above those that stand too near.
  const taken = [];
  const labelAt = (px, py, text, kind) => {
    const wide = text.length * 6.9;
    const anchored = px + wide + 10 > width ? 'end' : 'start';
    const [from, to] = anchored === 'start' ? [px, px + wide] : [px - wide, px];
    let y = py - 11;
    while (taken.some((box) => Math.abs(box.y - y) < 13 && box.from < to && from < box.to)) y -= 13;
    taken.push({ from, to, y });
    out.labels.push(s('text', { x: anchored === 'start' ? px - 3 : px + 3, y, 'text-anchor': anchored, class: `label ${kind}` }, text));
  };

  for (const version of [...versions].sort((a, b) => a.t - b.t)) {
    const { kind, off } = version;
    const from = [x(version.t), laneY(version.origin)];
    const old = version.places[version.origin].state === 'older' ? ' old' : '';
    for (const name of names) {
      if (name === version.origin) continue;
      const place = version.places[name];
      const y = laneY(name);
      if (HERE.includes(place.state)) {
        const [t, guess] = arrival(version, name, ways.oneWay);
        const to = [x(t), y];
        out.ways.push(s('line', { x1: from[0], y1: from[1], x2: to[0], y2: to[1], class: `way ${kind}${guess ? ' guess' : ''}${old}` }));
        const until = place.state === 'hidden' ? end + 8 : place.shown && place.shown > t ? x(place.shown) : null;
        if (until !== null) out.ways.push(s('line', { x1: to[0], x2: until, y1: y + off, y2: y + off, class: `waiting ${kind}` }));
        if (place.state !== 'hidden') {
          const shownAt = until ?? to[0];
          if (until !== null) out.dots.push(s('circle', { cx: to[0], cy: y, r: 5, class: `dot hollow ${kind}` }));
          if (place.state === 'visible') out.ways.push(s('line', { x1: shownAt, x2: end + 8, y1: y + off, y2: y + off, class: `standing ${kind}` }));
          out.dots.push(s('circle', { cx: shownAt, cy: y, r: 5, class: `dot ${kind}${place.state === 'older' ? ' old' : ''}` }, s('title', {}, `${version.key.label}: ${place.words}`)));
        } else {
          out.dots.push(s('circle', { cx: to[0], cy: y, r: 5.5, class: `dot hollow ${kind}` }, s('title', {}, `${version.key.label}: ${place.words}`)));
        }
      } else if (place.state === 'absent') {
        const aim = [Math.min(end, from[0] + Math.max(40, (end - from[0]) * 0.55)), y];
        const stop = part(from, aim, 0.62);
        out.ways.push(s('line', { x1: from[0], y1: from[1], x2: stop[0], y2: stop[1], class: `way lost ${kind}` }));
        if (ways.cut(version.origin, name)) out.dots.push(s('path', { d: `M${stop[0] - 5} ${stop[1] - 5} l10 10 m0 -10 l-10 10`, class: 'cross' }, s('title', {}, 'the link is cut')));
      }
    }
    const [px, py] = from;
    if (!old) out.ways.push(s('line', { x1: px, x2: end + 8, y1: py + off, y2: py + off, class: `standing ${kind}` }));
    out.dots.push(s('circle', { cx: px, cy: py, r: 6, class: `dot ${kind}${old}` }, s('title', {}, `${version.key.label}, written at ${time(version.t)} in ${version.origin}`)));
    labelAt(px, py, version.text.length > (narrow ? 18 : 34) ? `${version.text.slice(0, narrow ? 17 : 33)}…` : version.text, kind);
    for (const cause of version.needs.map((id) => versions.find((other) => other.uid === id)).filter(Boolean)) {
      const to = [x(cause.t), laneY(cause.origin)];
      const bend = from[1] === to[1] ? -26 : 0;
      const middle = [(from[0] + to[0]) / 2 - (bend ? 0 : 14), (from[1] + to[1]) / 2 + bend];
      const near = part(middle, to, 1 - 9 / (Math.hypot(to[0] - middle[0], to[1] - middle[1]) || 1));
      out.needs.push(s('path', { d: `M${from[0]} ${from[1]} Q${middle[0]} ${middle[1]} ${near[0]} ${near[1]}`, class: 'needs', 'marker-end': 'url(#needs)' }));
    }
  }

  // Times of writes, as far as there is room.
  const ticks = [];
  let until = -Infinity;
  for (const t of [...new Set(versions.map((version) => version.t))].sort((a, b) => a - b)) {
    const at = Math.min(Math.max(x(t), 40), width - 44);
    ticks.push(s('line', { x1: x(t), x2: x(t), y1: head, y2: height - 30, class: 'tickline' }));
    if (at - 42 < until) continue;
    until = at + 42;
    ticks.push(s('text', { x: at, y: height - 6, 'text-anchor': 'middle', class: 'tick' }, time(t)));
  }
  const marker = s('defs', {}, s('marker', { id: 'needs', viewBox: '0 0 8 8', refX: 6, refY: 4, markerWidth: 8, markerHeight: 8, orient: 'auto' }, s('path', { d: 'M0 0.5 L7.5 4 L0 7.5 z', class: 'needshead' })));
  return s('svg', { class: 'diagram', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': `Space-time diagram. ${model.words}` },
    marker, ticks, out.lanes, out.needs, out.ways, out.dots, out.labels);
}
