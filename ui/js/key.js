// The page of keys: their version chains in every data center, once or live.

import { post, repeat } from './api.js';
import { chip, h, onWidth, put, section, table } from './dom.js';
import { diagram } from './diagram.js';
import { bytes, keyOf, readable, shown, time } from './format.js';
import { oneWay, pairs } from './map.js';

const MOST_KEYS = 4;
const MOST_DRAWN = 6;

/** What is remembered of versions: a page may be open for days, beside a key that is written all the time. */
const MOST_KEPT = 2000;

/** Has `map` hold `value` under `name` as the newest; of too many, those go that were held longest ago. */
export function hold(map, name, value) {
  map.delete(name);
  map.set(name, value);
  if (map.size > MOST_KEPT) map.delete(map.keys().next().value);
  return value;
}

/** The choice of a keyspace, filled as soon as the cluster has told its own. */
export function keyspaceChoice(shared) {
  const choice = h('select', { name: 'keyspace' });
  const stop = shared.watch((status) => {
    if (choice.options.length === status.keyspaces.length) return;
    put(choice, status.keyspaces.map((keyspace) => h('option', { value: keyspace.name }, `${keyspace.name} (${keyspace.protocol})`)));
  });
  return [choice, stop];
}

const nameOf = (version) => `${version.millis}.${version.counter}@${version.origin}`;
const isLater = (one, other) => one.millis - other.millis || one.counter - other.counter;

/** The entries of a vector in the protocol's words: `{us-east:1795219506007.3, eu:…}`. */
function vectorOf(words) {
  const found = {};
  for (const [, name, millis, counter] of words.matchAll(/([\w.-]+):(\d{13})\.(\d+)/g)) found[name] = { millis: Number(millis), counter: Number(counter) };
  return found;
}

/** What a data center has of a version: whether it is there and read, and in words why not. */
function placeOf(place, version, id) {
  if (place.error !== undefined) return { state: 'unknown', words: `not known: ${place.error}` };
  const index = place.versions.findIndex((other) => nameOf(other) === id);
  if (index < 0) return place.versions.some((other) => isLater(other, version) > 0) ? { state: 'passed', words: 'replaced by a newer one' } : { state: 'absent', words: 'not here yet' };
  const { hidden } = place.versions[index];
  if (hidden) return { state: 'hidden', words: `hidden: ${readable(hidden)}` };
  return place.versions.slice(0, index).some((other) => !other.hidden) ? { state: 'older', words: 'older than the one that is read' } : { state: 'visible', words: 'visible: this is read' };
}

/** What this page has seen itself while it was live: between which two looks a version arrived where, and when it became visible. */
class Seen {
  constructor() {
    this.places = new Map();
    this.last = null;
  }

  /** Takes in the state of a version at a data center in the answer of `at`. */
  note(key, id, name, state, at) {
    const spot = `${key}|${id}|${name}`;
    const known = this.places.get(spot);
    const here = state === 'hidden' || state === 'visible' || state === 'older';
    if (!here) return {};
    // Of what was there at the first look nobody knows when it came.
    if (!known) return hold(this.places, spot, { after: this.last, arrived: this.last === null ? null : at, shown: null, hidden: state === 'hidden' });
    hold(this.places, spot, known);
    if (known.hidden && state !== 'hidden') Object.assign(known, { hidden: false, shown: at });
    return known;
  }
}

/** The diagram's model of an answer. */
function modelOf(answer, seen, values) {
  const names = answer.keys[0].data_centers.map((place) => place.name);
  const keys = answer.keys.map((key, index) => {
    const label = shown(key.key) || '(empty)';
    const all = new Map();
    for (const place of key.data_centers) for (const version of place.versions ?? []) all.set(nameOf(version), version);
    for (const place of key.data_centers) for (const [id, value] of Object.entries(place.values ?? {})) hold(values, `${index} ${id}`, value);
    const newest = [...all.entries()].sort(([, one], [, other]) => isLater(other, one)).slice(0, MOST_DRAWN);
    const versions = newest.map(([id, version]) => {
      const places = {};
      for (const place of key.data_centers) {
        const state = placeOf(place, version, id);
        places[place.name] = { ...state, ...seen.note(index, id, place.name, state.state, answer.at_ms) };
      }
      const value = values.get(`${index} ${id}`);
      if (value) hold(values, `${index} ${id}`, value);
      const told = version.length === null ? 'deleted' : value ? shown(value) : bytes(version.length);
      return { id, uid: `${index} ${id}`, t: version.millis, counter: version.counter, millis: version.millis, origin: version.origin, vector: vectorOf(version.dependencies), dependencies: version.dependencies, places, told, text: `${label} = ${told}` };
    });
    return { label, versions, data_centers: key.data_centers, partition: key.partition };
  });
  seen.last = answer.at_ms;
  // Of each key and origin, the last version that the vector covers is what it needs.
  const everything = keys.flatMap((key) => key.versions);
  for (const version of everything) {
    const causes = new Map();
    for (const other of everything) {
      const entry = version.vector[other.origin];
      if (other === version || !entry || isLater(entry, other) < 0) continue;
      const slot = `${other.uid.split(' ')[0]} ${other.origin}`;
      if (!causes.has(slot) || isLater(other, causes.get(slot)) > 0) causes.set(slot, other);
    }
    version.needs = [...causes.values()].map((cause) => cause.uid);
  }
  const states = {};
  const told = [];
  for (const name of names) {
    states[name] = keys.map((key) => {
      const place = key.data_centers.find((one) => one.name === name);
      if (place.error !== undefined) return ['not known', 'grave'];
      const [newest] = key.versions;
      if (!newest) return ['never written', 'soft'];
      const { state } = newest.places[name];
      const words = { visible: 'visible', hidden: 'hidden', absent: 'not here', passed: 'newer', older: 'older one read', unknown: 'not known' }[state];
      told.push(`${key.label} in ${name}: ${newest.places[name].words}`);
      return [words, state === 'hidden' || state === 'absent' ? 'grave' : 'soft'];
    });
  }
  return { names, keys, states, now: answer.at_ms, words: told.join('; ') };
}

function reasons(model) {
  const found = [];
  for (const key of model.keys) {
    for (const name of model.names) {
      for (const version of key.versions) {
        const place = version.places[name];
        if (place.state !== 'hidden') continue;
        const missing = version.needs.map((uid) => model.keys.flatMap((other) => other.versions).find((other) => other.uid === uid)).filter((cause) => cause && !['visible', 'older', 'passed'].includes(cause.places[name].state));
        found.push(h('p', { class: 'reason' }, h('strong', {}, `${name} has ${key.label} and hides it. `), `It ${place.words.replace(/^hidden: /, '')}.`,
          missing.length ? ` What it depends on is not visible there: ${missing.map((cause) => cause.text).join(', ')}.` : ''));
      }
    }
  }
  return found;
}

function chains(model) {
  return model.keys.map((key) => {
    const rows = key.versions.map((version) => [
      [h('code', {}, `${time(version.t)}.${version.counter}`), 'tight'], [version.origin, 'tight'], h('code', {}, version.told), h('span', { class: 'note' }, readable(version.dependencies) === '{}' || !version.dependencies ? 'none' : readable(version.dependencies)),
      ...model.names.map((name) => {
        const { state, words } = version.places[name];
        const [kind, text] = { visible: ['good', 'visible'], hidden: ['grave', 'hidden'], absent: ['mild', 'not here'], older: ['plain', 'older'], passed: ['plain', 'replaced'], unknown: ['mild', 'not known'] }[state];
        return h('span', { title: words }, chip(kind, text));
      }),
    ]);
    const head = h('h3', {}, h('code', {}, key.label), h('span', { class: 'note' }, ` partition ${key.partition}`));
    const more = key.data_centers.some((place) => place.more > 0 || (place.versions?.length ?? 0) > MOST_DRAWN) ? h('p', { class: 'note' }, 'Older versions are left out.') : null;
    return [head, rows.length ? table(`Versions of ${key.label}`, ['written', 'in', 'value', 'depends on', ...model.names], rows) : h('p', { class: 'note' }, 'No data center has a version of it.'), more];
  });
}

const legend = () => h('p', { class: 'legend' },
  ['● written, or visible from here on', '○ arrived and hidden', '▒ hidden for as long', '⇠ depends on', '– – not arrived; ✕ where the link is cut', '····· arrival reckoned from the one-way delay; a full line: seen by this page, to half a second'].map((words) => h('span', {}, words)));

export function keyPage(root, shared) {
  const [choice, unwatch] = keyspaceChoice(shared);
  const field = h('input', { name: 'key', autocomplete: 'off', spellcheck: 'false', placeholder: 'photo', maxlength: 4096, 'aria-describedby': 'keynote' });
  const live = h('input', { type: 'checkbox', name: 'live', checked: true });
  const [tags, drawn, said, listed] = [h('div', { class: 'keys' }), h('div'), h('p', { class: 'error', role: 'alert' }), h('div')];
  const [seen, values] = [{ now: new Seen() }, new Map()];
  let keys = shared.keys ?? [];
  let stop = null;
  let width = 0;
  let model = null;
  let wantsValues = true;
  let last = '';

  const draw = () => {
    if (!model || !width) return;
    const ways = {
      oneWay: (from, to) => (shared.status ? oneWay(shared.status, from, to) : null),
      cut: (from, to) => shared.status && pairs(shared.status).some((pair) => (pair.cut || pair.down) && [pair.one, pair.other].includes(from) && [pair.one, pair.other].includes(to)),
    };
    const versions = model.keys.some((key) => key.versions.length);
    put(drawn, versions ? [diagram(model, ways, width), legend()] : h('p', { class: 'note' }, 'No data center has a version of it.'), ...reasons(model));
  };
  const ask = async () => {
    if (!choice.value) return;
    const wanted = () => [choice.value, ...keys].join('\n');
    const asked = wanted();
    try {
      const answer = await post('key', { keyspace: choice.value, keys: keys.map(keyOf), values: wantsValues });
      if (asked !== wanted()) return;
      put(said);
      model = modelOf(answer, seen.now, values);
      const shape = model.keys.map((key) => key.versions.map((version) => version.id).join()).join(';');
      // Values are asked for again when there is another version.
      wantsValues = shape !== last;
      last = shape;
      draw();
      put(listed, chains(model));
    } catch (error) {
      if (asked === wanted()) put(said, error.message);
    }
  };
  const begin = () => {
    stop?.();
    stop = null;
    seen.now = new Seen();
    values.clear();
    wantsValues = true;
    last = '';
    model = null;
    shared.keys = keys;
    put(drawn);
    put(listed);
    put(tags, keys.map((key, index) => h('span', { class: 'keytag' }, h('span', { class: `swatch c${index}` }), h('code', {}, key === '' ? '(empty)' : key),
      h('button', { type: 'button', 'aria-label': `Leave out ${key}`, onclick: () => { keys = keys.filter((other) => other !== key); begin(); } }, '✕'))));
    if (keys.length === 0) {
      put(drawn, h('p', { class: 'note' }, 'Type one key or several, such as a cause and its effect. The diagram shows who wrote what where, what it depends on, where it is visible, and why not yet.'));
      return;
    }
    if (live.checked) stop = repeat(500, ask);
    else ask();
  };
  const submit = (event) => {
    event.preventDefault();
    if (field.value !== '' && !keys.includes(field.value)) keys = [...keys, field.value].slice(-MOST_KEYS);
    field.value = '';
    begin();
  };
  choice.addEventListener('change', begin);
  live.addEventListener('change', begin);
  put(root, section('Keys', null,
    h('form', { class: 'form', onsubmit: submit }, h('label', {}, 'Keyspace', choice), h('label', { class: 'grow' }, 'Key', field), h('button', { type: 'submit' }, 'Look'), h('label', { class: 'check' }, live, 'live')),
    tags, h('p', { class: 'note', id: 'keynote' }, `Up to ${MOST_KEYS} keys in one diagram. \\xNN stands for a byte. Live asks twice a second: what it sees arrive or become visible, it draws when it saw it.`), said),
    section('Space-time diagram', h('span', { class: 'note' }, 'as a new session would see it'), drawn), section('Versions', null, listed));
  const sized = onWidth(drawn, (now) => { width = now; draw(); });
  const watch = shared.watch(() => { if (keys.length && !model && !stop) begin(); });
  begin();
  return () => { stop?.(); unwatch(); watch(); sized(); };
}
