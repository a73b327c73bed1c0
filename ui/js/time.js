// The page of time: courses of the last fifteen minutes, made from what this page has asked since it was opened.

import { h, put } from './dom.js';
import { chart } from './chart.js';
import { short, span } from './format.js';

const MINUTES = 15;
const LEVELS = ['eventual', 'session', 'causal', 'local', 'strong'];
const KINDS = { reads: ['get', 'read_transaction', 'scan', 'count'], writes: ['put', 'change', 'transact'], counters: ['counter'] };

/** Where in powers of two the share `share` of what was counted lies, within its bucket evenly. */
export function quantile(buckets, share) {
  const all = buckets.reduce((sum, count) => sum + count, 0);
  if (all === 0) return null;
  let left = share * all;
  for (let index = 0; index < buckets.length; index++) {
    if (left <= buckets[index]) {
      if (index === 0) return 0;
      const low = 2 ** (index - 1);
      return low + (left / buckets[index]) * low;
    }
    left -= buckets[index];
  }
  return 2 ** (buckets.length - 1);
}

/** Of reads and writes under each service level since the last look: the share that each entry answered, and that none did. */
function held(now, last) {
  const shares = {};
  for (const level of now) {
    const before = last.find((one) => one.name === level.name);
    for (const way of ['reads', 'writes']) {
      const grown = level[way].entries.map((entry) => [`${entry.entry}. ${entry.aim || 'entry'}`, entry.held - (before?.[way].entries.find((one) => one.entry === entry.entry)?.held ?? 0)]);
      grown.push(['missed', level[way].missed - (before?.[way].missed ?? 0)]);
      const all = grown.reduce((sum, [, number]) => sum + number, 0);
      if (level[way].entries.some((entry) => entry.held) || level[way].missed) shares[`${level.name}: ${way}`] = Object.fromEntries(grown.map(([name, number]) => [name, all > 0 ? (100 * number) / all : null]));
    }
  }
  return shares;
}

/** What the page has heard, as long as it is open; what is older than a quarter of an hour goes. */
export class Courses {
  constructor() {
    this.samples = [];
    this.lags = [];
    this.last = null;
    this.drawn = 0;
    this.watchers = new Set();
  }

  addTime(now) {
    const { last } = this;
    this.last = now;
    // A node that has started anew counts from 0. After a pause it may have been up longer than the one before, so it is known by when it started.
    const started = (of) => of.at_ms - of.uptime_ms;
    if (last && now.uptime_ms > last.uptime_ms && Math.abs(started(now) - started(last)) < 1000) {
      const seconds = (now.uptime_ms - last.uptime_ms) / 1000;
      const grown = (of) => Object.fromEntries(Object.entries(now[of]).map(([name, count]) => [name, count - last[of][name]]));
      const counted = (of) => Object.fromEntries(Object.entries(now[of]).map(([name, buckets]) => [name, buckets.map((count, index) => count - last[of][name][index])]));
      const operations = grown('operations');
      const rate = (names) => names.reduce((sum, name) => sum + operations[name], 0) / seconds;
      const [latency, stale] = [counted('latency_us'), counted('staleness_ms')];
      const of = (all, share) => Object.fromEntries(LEVELS.map((level) => [level, quantile(all[level], share)]));
      this.samples.push({
        t: now.at_ms, rates: Object.fromEntries(Object.entries(KINDS).map(([name, kinds]) => [name, rate(kinds)])),
        failures: Object.values(grown('failures')).reduce((sum, count) => sum + count, 0) / seconds,
        latency: [of(latency, 0.5), of(latency, 0.99)], stale: of(stale, 0.95), reads: Object.fromEntries(Object.entries(grown('reads')).map(([level, count]) => [level, count / seconds])),
      });
      this.forget(this.samples, now.at_ms);
    }
    const sample = this.samples.at(-1);
    if (sample?.t === now.at_ms) sample.held = held(now.service_levels, last.service_levels);
    this.watchers.forEach((watcher) => watcher());
  }

  addStatus(status) {
    const behind = {};
    for (const link of status.links) if (link.visible_ms !== null || link.arrived_ms !== null) behind[`${link.from} → ${link.to}`] = link.visible_ms ?? link.arrived_ms;
    this.lags.push({ t: status.at_ms, behind });
    this.forget(this.lags, status.at_ms);
  }

  forget(list, now) {
    const from = now - MINUTES * 60_000;
    while (list.length && (list[0].t < from || list[0].t > now)) list.shift();
  }
}

/** At most `most` of them, evenly: screens are not wider. */
function thinned(list, most) {
  const every = Math.ceil(list.length / most);
  return every <= 1 ? list : list.filter((_, index) => (list.length - 1 - index) % every === 0);
}

export function timePage(root, shared) {
  const { courses } = shared;
  const node = shared.session.node;
  const charts = {
    rates: chart('Operations per second', `at ${node}`), reads: chart('Reads per second by level', `at ${node}`),
    half: chart('Latency, median', `RESP, at ${node}`), most: chart('Latency, 99th percentile', `RESP, at ${node}`),
    stale: chart('Staleness of answers, 95th percentile', `bound, at ${node}`), failures: chart('Operations failed per second', `at ${node}`),
  };
  const lags = new Map();
  const levels = new Map();
  const [levelTitle, levelBox] = [h('h2', { hidden: true }, 'Service levels: which entry operations were answered by'), h('div', { class: 'three' })];
  const lagBox = h('div', { class: 'three' });
  put(root, h('p', { class: 'note' }, `The last ${MINUTES} minutes, as far as this page has been open: servers keep nothing of it. Operations, latency and staleness are those of node ${node}; open another node's console for its own. Lag is of the whole cluster.`),
    h('div', { class: 'three' }, Object.values(charts).map((one) => one.element)), levelTitle, levelBox, h('h2', {}, 'Lag: how far what a data center shows is behind another one'), lagBox);
  const draw = () => {
    const samples = thinned(courses.samples, 300);
    const times = samples.map((sample) => sample.t);
    const set = (one, names, of, unit, least) => {
      const all = names.map((name, colour) => ({ name, colour, points: samples.map((sample) => of(sample, name) ?? null) }));
      const busy = all.filter((course) => course.points.some((point) => point !== null));
      one.set({ courses: busy.length ? busy : all.slice(0, 1), times, unit, least, minutes: MINUTES });
    };
    set(charts.rates, Object.keys(KINDS), (sample, name) => sample.rates[name], short, 3);
    set(charts.reads, LEVELS, (sample, name) => sample.reads[name], short, 3);
    set(charts.half, LEVELS, (sample, name) => sample.latency[0][name], (us) => span(us / 1000), 300);
    set(charts.most, LEVELS, (sample, name) => sample.latency[1][name], (us) => span(us / 1000), 300);
    set(charts.stale, LEVELS, (sample, name) => sample.stale[name], span, 100);
    set(charts.failures, ['failed'], (sample) => sample.failures, short, 3);
    for (const name of new Set(samples.flatMap((sample) => Object.keys(sample.held ?? {})))) {
      if (!levels.has(name)) {
        levels.set(name, chart(name, `at ${node}`));
        levelBox.append(levels.get(name).element);
        levelTitle.hidden = false;
      }
      set(levels.get(name), [...new Set(samples.flatMap((sample) => Object.keys(sample.held?.[name] ?? {})))], (sample, entry) => sample.held?.[name]?.[entry], (percent) => `${percent.toFixed(percent > 0 && percent < 10 ? 1 : 0)} %`, 100);
    }
    const heard = thinned(courses.lags, 300);
    const to = [...new Set(heard.flatMap((lag) => Object.keys(lag.behind)))].sort();
    const places = [...new Set(to.map((pair) => pair.split(' → ')[1]))];
    for (const place of places) {
      if (!lags.has(place)) {
        lags.set(place, chart(`At ${place}`, 'behind …'));
        lagBox.append(lags.get(place).element);
      }
      const own = to.filter((pair) => pair.endsWith(` → ${place}`));
      lags.get(place).set({ courses: own.map((pair) => ({ name: pair.split(' → ')[0], points: heard.map((lag) => lag.behind[pair] ?? null) })), times: heard.map((lag) => lag.t), unit: span, least: 100, minutes: MINUTES });
    }
  };
  courses.watchers.add(draw);
  draw();
  return () => { courses.watchers.delete(draw); [...Object.values(charts), ...levels.values(), ...lags.values()].forEach((one) => one.stop()); };
}
