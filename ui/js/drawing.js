// A file as a drawing: data centers and the ways between them, and the map on which they are chosen. What follows from a file the server says; here it is only changed.

import { s } from './dom.js';
import { span } from './format.js';
import { places } from './layout.js';

const pairIs = (pair, a, b) => Array.isArray(pair) && ((pair[0] === a && pair[1] === b) || (pair[0] === b && pair[1] === a));
const list = (value) => (Array.isArray(value) ? value : []);

/** Takes `field` out of `table` where it holds nothing. */
function tidy(table, field) {
  const value = table?.[field];
  if (value === undefined || (Array.isArray(value) ? value.length === 0 : typeof value === 'object' && value !== null && Object.keys(value).length === 0)) delete table?.[field];
}

/** What differs between the two kinds of files, behind the same names. `names`: of the data centers, in order. */
export const KINDS = {
  cluster: {
    names: (file) => list(file.data_center).map((place) => String(place?.name ?? '')),
    add(file, name) { (file.data_center ??= []).push({ name }); },
    rename(file, index, name) {
      const before = file.data_center[index].name;
      file.data_center[index].name = name;
      const emulation = file.emulation ?? {};
      list(emulation.link).forEach((link) => { link.between = list(link.between).map((one) => (one === before ? name : one)); });
      list(emulation.delay).forEach((delay) => ['from', 'to'].forEach((end) => { if (delay[end] === before) delay[end] = name; }));
      list(emulation.slow).forEach((slow) => { if (slow.data_center === before) slow.data_center = name; });
      // Nodes without names of their own are named after their data center.
      list(emulation.clock).forEach((clock) => {
        const number = typeof clock.node === 'string' && clock.node.startsWith(`${before}-`) ? clock.node.slice(before.length + 1) : '';
        if (/^\d+$/.test(number)) clock.node = `${name}-${number}`;
      });
    },
    remove(file, index) {
      const [gone] = file.data_center.splice(index, 1);
      const emulation = file.emulation ?? {};
      if (emulation.link) emulation.link = emulation.link.filter((link) => !list(link.between).includes(gone.name));
      if (emulation.delay) emulation.delay = emulation.delay.filter((delay) => delay.from !== gone.name && delay.to !== gone.name);
      if (emulation.slow) emulation.slow = emulation.slow.filter((slow) => slow.data_center !== gone.name);
      // `us-east-1` is no node of `us`.
      const own = (node) => list(gone.node).some((one) => one?.name === node) || (node.startsWith(`${gone.name}-`) && /^\d+$/.test(node.slice(`${gone.name}-`.length)));
      if (emulation.clock) emulation.clock = emulation.clock.filter((clock) => !own(String(clock.node)));
      ['link', 'delay', 'slow', 'clock'].forEach((field) => tidy(emulation, field));
      tidy(file, 'emulation');
    },
    /** The round trip of a pair and its two directions, as far as the file gives them for this pair alone. */
    link(file, a, b) {
      const names = this.names(file);
      const emulation = file.emulation ?? {};
      const delay = (from, to) => list(emulation.delay).find((one) => one.from === from && one.to === to)?.one_way_ms;
      const own = list(emulation.link).find((one) => pairIs(one.between, names[a], names[b]));
      return { trip: own?.round_trip_ms, jitter: own?.jitter_ms, there: delay(names[a], names[b]), back: delay(names[b], names[a]) };
    },
    setLink(file, a, b, { trip, jitter, there, back }) {
      const names = this.names(file);
      const emulation = (file.emulation ??= {});
      const place = list(emulation.link).findIndex((one) => pairIs(one.between, names[a], names[b]));
      if (trip === undefined) {
        if (place >= 0) emulation.link.splice(place, 1);
      } else {
        const own = place >= 0 ? emulation.link[place] : { between: [names[a], names[b]] };
        own.round_trip_ms = trip;
        if (jitter === undefined) delete own.jitter_ms;
        else own.jitter_ms = jitter;
        if (place < 0) (emulation.link ??= []).push(own);
      }
      for (const [from, to, ms] of [[names[a], names[b], there], [names[b], names[a], back]]) {
        const at = list(emulation.delay).findIndex((one) => one.from === from && one.to === to);
        if (ms === undefined) { if (at >= 0) emulation.delay.splice(at, 1); } else if (at >= 0) emulation.delay[at].one_way_ms = ms;
        else (emulation.delay ??= []).push({ from, to, one_way_ms: ms });
      }
      ['link', 'delay'].forEach((field) => tidy(emulation, field));
      tidy(file, 'emulation');
    },
    /** Whether the ways between data centers are emulated, so that a new one needs some. */
    emulates: (file) => file.emulation !== undefined || !list(file.data_center).some((place) => place.host || list(place.node).some((node) => node.host)),
    knows: (file) => file.emulation?.known_regions === true,
    hasJitter: true,
  },
  experiment: {
    names: (file) => list(file.cluster?.regions).map(String),
    add(file, name) { ((file.cluster ??= {}).regions ??= []).push(name); },
    rename(file, index, name) {
      const before = file.cluster.regions[index];
      file.cluster.regions[index] = name;
      const trips = file.cluster.round_trips_ms;
      if (!trips) return;
      file.cluster.round_trips_ms = Object.fromEntries(Object.entries(trips).map(([pair, ms]) => [pair.split(':').map((one) => (one === before ? name : one)).join(':'), ms]));
    },
    remove(file, index) {
      const { cluster } = file;
      const [gone] = cluster.regions.splice(index, 1);
      const moved = (dc) => (dc > index ? dc - 1 : dc);
      if (cluster.round_trips_ms) cluster.round_trips_ms = Object.fromEntries(Object.entries(cluster.round_trips_ms).filter(([pair]) => !pair.split(':').includes(gone)));
      if (cluster.link) cluster.link = cluster.link.filter((link) => link.from !== index && link.to !== index).map((link) => ({ ...link, from: moved(link.from), to: moved(link.to) }));
      if (cluster.change) cluster.change = cluster.change.filter((change) => !list(change.between).includes(index)).map((change) => ({ ...change, between: list(change.between).map(moved) }));
      if (cluster.cut) cluster.cut = cluster.cut.filter((cut) => !list(cut.between).includes(index)).map((cut) => ({ ...cut, between: list(cut.between).map(moved) }));
      if (cluster.slow?.data_center === index) delete cluster.slow;
      else if (cluster.slow) cluster.slow.data_center = moved(cluster.slow.data_center);
      file.load = list(file.load).filter((load) => !(list(load.data_centers).length && load.data_centers.every((dc) => dc === index)));
      file.load.forEach((load) => { if (load.data_centers) load.data_centers = load.data_centers.filter((dc) => dc !== index).map(moved); });
      ['round_trips_ms', 'link', 'change', 'cut'].forEach((field) => tidy(cluster, field));
    },
    link(file, a, b) {
      const names = this.names(file);
      const trips = file.cluster?.round_trips_ms ?? {};
      const own = (from, to) => list(file.cluster?.link).findLast((one) => one.from === from && one.to === to)?.ms;
      return { trip: trips[`${names[a]}:${names[b]}`] ?? trips[`${names[b]}:${names[a]}`], there: own(a, b), back: own(b, a) };
    },
    setLink(file, a, b, { trip, there, back }) {
      const names = this.names(file);
      const cluster = (file.cluster ??= {});
      const trips = (cluster.round_trips_ms ??= {});
      const back_to_front = `${names[b]}:${names[a]}`;
      const key = back_to_front in trips ? back_to_front : `${names[a]}:${names[b]}`;
      if (trip === undefined) delete trips[key];
      else trips[key] = trip;
      cluster.link = list(cluster.link).filter((one) => !((one.from === a && one.to === b) || (one.from === b && one.to === a)));
      if (there !== undefined) cluster.link.push({ from: a, to: b, ms: there });
      if (back !== undefined) cluster.link.push({ from: b, to: a, ms: back });
      ['round_trips_ms', 'link'].forEach((field) => tidy(cluster, field));
    },
    emulates: () => true,
    knows: () => false,
    hasJitter: false,
  },
};

/** The ways of a pair in words. */
export function ways(there, back) {
  if (there === undefined && back === undefined) return 'no delay given';
  if (there === back) return `${span(there)} one way`;
  return `${there === undefined ? '?' : span(there)} → · ← ${back === undefined ? '?' : span(back)}`;
}

/** The map. `chosen` is `{ dc }`, `{ link: [a, b] }` or nothing; `choose` is told another one. `kept` holds the places between two drawings. */
export function drawMap(kind, file, drawn, width, chosen, choose, kept) {
  const names = KINDS[kind].names(file);
  const of = (name) => drawn?.data_centers?.find((place) => place.name === name);
  const way = (from, to) => drawn?.ways?.find((one) => one.from === names[from] && one.to === names[to])?.ms;
  const [padX, padY] = [width < 520 ? 50 : 90, 54];
  const both = (i, j) => { const [there, back] = [way(i, j), way(j, i)]; return there === undefined ? back : back === undefined ? there : (there + back) / 2; };
  const shape = `${width} ${names.length} ${names.map((_, i) => names.map((_, j) => Math.round(Math.log2(1 + (both(i, j) ?? 0)) * 2)).join(' ')).join(' ')}`;
  if (kept.shape !== shape) {
    kept.shape = shape;
    const found = places(names.length, both, width - 2 * padX, Math.max(110, Math.min(280, Math.round(width * 0.42))));
    const [top, bottom] = [Math.min(...found.map(([, y]) => y)), Math.max(...found.map(([, y]) => y))];
    kept.places = found.map(([x, y]) => [x + padX, y - top + padY]);
    kept.height = bottom - top + 2 * padY + (kind === 'experiment' ? 12 : 0);
  }
  const { height } = kept;
  const pressed = (tell) => ({ onclick: tell, onkeydown: (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); tell(); } } });
  const [lines, labels, spots] = [[], [], []];
  const crowded = names.length > 5;
  for (let a = 0; a < names.length; a++) {
    for (let b = a + 1; b < names.length; b++) {
      const [[x1, y1], [x2, y2]] = [kept.places[a], kept.places[b]];
      const [there, back] = [way(a, b), way(b, a)];
      const isChosen = chosen?.link?.[0] === a && chosen.link[1] === b;
      const text = ways(there, back);
      const name = `${names[a]} – ${names[b]}: ${text}`;
      lines.push(s('g', { class: `line${isChosen ? ' chosen' : ''}`, role: 'button', tabindex: 0, 'aria-label': name, 'aria-pressed': isChosen ? 'true' : 'false', 'data-focus': `link ${a} ${b}`, ...pressed(() => choose({ link: [a, b] })) },
        s('title', {}, name), s('line', { x1, y1, x2, y2, class: 'grip' }), s('line', { x1, y1, x2, y2, class: there === undefined && back === undefined ? 'link none' : 'link' })));
      if (crowded && !isChosen && chosen?.dc !== a && chosen?.dc !== b) continue;
      const [mx, my] = [(x1 + x2) / 2, (y1 + y2) / 2];
      const [dx, dy] = [x2 - x1, y2 - y1];
      const long = Math.hypot(dx, dy) || 1;
      const out = (mx - width / 2) * -dy + (my - height / 2) * dx >= 0 ? 1 : -1;
      const half = text.length * 3.3;
      const flat = Math.abs(dx) / long;
      const away = 13 * flat + (half + 8) * (1 - flat) + (flat < 0.98 ? 6 : 0);
      const lx = Math.max(half + 2, Math.min(width - half - 2, mx + (-dy / long) * out * away));
      const ly = Math.max(12, Math.min(height - 8, my + (dx / long) * out * away + 4));
      labels.push(s('text', { x: lx, y: ly, 'text-anchor': 'middle', class: 'linklabel', 'aria-hidden': 'true' }, text));
    }
  }
  names.forEach((name, index) => {
    const [x, y] = kept.places[index];
    const place = of(name);
    const isChosen = chosen?.dc === index;
    const above = y <= height / 2;
    const inside = place?.inside ?? 1;
    const clients = place?.clients === undefined ? '' : `${place.clients} client${place.clients === 1 ? '' : 's'}`;
    const short = name.length > 22 ? `${name.slice(0, 21)}…` : name;
    const words = kind === 'cluster' ? `${inside} node${inside === 1 ? '' : 's'}` : `${inside} partition${inside === 1 ? '' : 's'}, ${clients}`;
    // What is written there stands beside the button: its name says it in words.
    spots.push(s('g', { class: `spot good${isChosen ? ' chosen' : ''}` },
      s('g', { role: 'button', tabindex: 0, 'aria-label': `Data center ${name}: ${words}`, 'aria-pressed': isChosen ? 'true' : 'false', 'data-focus': `dc ${index}`, ...pressed(() => choose({ dc: index })) },
        s('title', {}, `Data center ${name}: ${words}`), s('circle', { cx: x, cy: y, r: 16 })),
      s('g', { class: 'words', 'aria-hidden': 'true' }, s('text', { x, y: y + 4.5, 'text-anchor': 'middle', class: 'inside' }, inside),
        s('text', { x, y: above ? y - (clients ? 38 : 24) : y + 34, 'text-anchor': 'middle', class: 'name' }, short),
        clients && s('text', { x, y: above ? y - 23 : y + 49, 'text-anchor': 'middle', class: 'clients' }, clients))));
  });
  return s('svg', { class: 'map design', viewBox: `0 0 ${width} ${height}`, width, height, role: 'group', 'aria-label': 'Map of the data centers; distance is delay' }, lines, labels, spots);
}
