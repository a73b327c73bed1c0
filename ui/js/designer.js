// The page Designer: a cluster file and an experiment, drawn, checked by the server that serves the page, run there in virtual time.

import { get, post, repeat } from './api.js';
import { chip, h, onWidth, put, section, table } from './dom.js';
import { KINDS, drawMap, ways } from './drawing.js';
import { Fields, look } from './fields.js';
import { figure } from './figure.js';
import { span } from './format.js';

const TITLES = { cluster: 'Cluster', experiment: 'Experiment' };
const COMMANDS = { cluster: (name) => `rheostat ctl cluster up ${name}`, experiment: (name) => `rheostat lab run ${name}` };
const MEASURES = ['operations_per_second', 'get_mean_ms', 'get_p50_ms', 'get_p99_ms', 'get_max_ms', 'put_mean_ms', 'put_p50_ms', 'put_p99_ms', 'transaction_mean_ms', 'transaction_p99_ms', 'visibility_mean_ms', 'staleness_mean_ms',
  'failures', 'get_strong_percent', 'get_within_percent', 'service_level_held_percent', 'messages_per_operation', 'remote_messages_per_operation', 'remote_bytes_per_operation', 'busiest_server_percent'];
const BEGINNINGS = {
  cluster: { cluster: 'shop', partitions: 2, data_center: [{ name: 'us-east' }, { name: 'eu' }], keyspace: [{ name: 'default', protocol: 'causal' }], emulation: { known_regions: true } },
};
/** What clients can do, each with what it begins as. */
const ACTS = {
  mix: ['reads and writes', { put: 0.2, keys: 1000 }], amplified: ['requests of many writes', { factor: 10, keys: 100 }], 'ping-pong': ['answer each other through a key', { partition: 0 }],
  alternating: ['one key of each partition in turn', { partitions: [0] }], groups: ['writes, and then a read', { writes: 10, keys: 100 }], social: ['application: graph colouring', { nodes: 500 }],
  weather: ['application: weather', { nodes: 400, shape: 'grid' }], conjunctive: ['application: predicates', { predicates: 8, locals: 4, chance: 0.2, rate: 10 }],
};
/** How many steps can be taken back. */
const STEPS = 60;

/** What stays while other pages of the console are looked at. */
const kept = { kind: 'cluster', docs: { cluster: null, experiment: null }, chosen: null, steps: [], notes: [], catalogue: null, places: { cluster: {}, experiment: {} }, form: 'quick', run: null, unsaved: false, stale: false };

addEventListener('beforeunload', (event) => { if (kept.unsaved) event.preventDefault(); });

const copy = (value) => JSON.parse(JSON.stringify(value));

export function designerPage(root, shared) {
  const operates = shared.session?.operates === true;
  const said = h('p', { class: 'error', role: 'alert' });
  const [tabs, verdict, notes, map, adding, inspector, forms, runner, results] = [h('div', { class: 'tabs', role: 'group', 'aria-label': 'Which file' }), h('div', { class: 'verdict', role: 'status' }), h('div'), h('div'), h('div'), h('div', { class: 'inspector' }), h('div', { class: 'forms' }), h('div'), h('div', { class: 'results' })];
  const text = h('textarea', { class: 'mono', rows: 18, spellcheck: 'false', autocomplete: 'off', 'aria-label': 'The file', wrap: 'off' });
  const place = h('p', { class: 'error' });
  let [width, timer, asked, stops, endPolling, ended, waiting] = [0, 0, 0, [], null, false, null];
  const doc = () => kept.docs[kept.kind];

  // ---- Asking the server whether the file is right.

  const take = (kind, answer, whole) => {
    const before = kept.docs[kind];
    // A text that is no file leaves the drawing as it was.
    const file = answer.file ?? before?.file ?? {};
    kept.docs[kind] = { ...answer, file: whole ? file : before.file };
  };
  const examine = async (number, kind, body, whole) => {
    try {
      const answer = await post('design/check', { kind, ...body });
      if (number !== asked || ended) return;
      put(said);
      take(kind, answer, whole);
      if (whole) draw();
      else told();
    } catch (error) {
      put(said, error.message);
    }
  };
  let under = null;
  const check = (kind, body, whole) => { under = examine(++asked, kind, body, whole); return under; };
  const soon = () => {
    const { kind } = kept;
    clearTimeout(timer);
    waiting = () => { waiting = null; return check(kind, { file: kept.docs[kind].file }, false); };
    timer = setTimeout(() => waiting?.(), 250);
  };
  /** Until what was drawn or typed last has been looked at: what is saved and run is what is seen. */
  const settled = async () => {
    clearTimeout(timer);
    await (waiting ? waiting() : under);
  };
  const remember = () => {
    kept.steps.push({ kind: kept.kind, file: copy(doc().file) });
    if (kept.steps.length > STEPS) kept.steps.shift();
    kept.unsaved = true;
  };
  let typing = null;
  /** Does `step` to the file; `again`: fields are drawn anew. */
  const changed = (step, again) => {
    // What is typed into one field is one step back.
    const field = again ? null : document.activeElement?.dataset.key;
    if (!field || field !== typing) remember();
    typing = field;
    step();
    if (again) {
      drawFields();
      drawPlaces();
    }
    soon();
  };
  const choose = (chosen) => {
    kept.chosen = chosen;
    drawPlaces();
    drawInspector();
  };
  const replace = (kind, body) => {
    if (doc()) remember();
    typing = null;
    kept.kind = kind;
    kept.chosen = null;
    kept.notes = [];
    return check(kind, body, true);
  };

  // ---- The head: which file, and what can be done with it.

  const save = async () => {
    await settled();
    const link = h('a', { href: URL.createObjectURL(new Blob([doc().text], { type: 'application/toml' })), download: doc().name });
    link.click();
    URL.revokeObjectURL(link.href);
    kept.unsaved = false;
  };
  const opening = h('input', { type: 'file', accept: '.toml', class: 'hidden', tabindex: -1, 'aria-label': 'A file to open', onchange: async (event) => {
    const [file] = event.target.files;
    event.target.value = '';
    if (!file) return;
    if (file.size > 60_000) { put(said, `${file.name} is larger than 60 kB, which is more than a page takes.`); return; }
    const content = await file.text();
    const kind = /^\s*\[\[\s*(contender|load)\s*\]\]/m.test(content) ? 'experiment' : /^\s*\[\[\s*(data_center|keyspace)\s*\]\]/m.test(content) ? 'cluster' : kept.kind;
    await replace(kind, { text: content });
  } });
  const other = () => (kept.kind === 'cluster' ? 'experiment' : 'cluster');
  const takeOver = async () => {
    try {
      const [kind, from] = [kept.kind, kept.docs[other()].file];
      const answer = await post('design/take-over', { kind, from, into: doc().file });
      put(said);
      remember();
      take(kind, answer, true);
      kept.notes = answer.notes;
      kept.chosen = null;
      draw();
    } catch (error) {
      put(said, error.message);
    }
  };
  const back = () => {
    const last = kept.steps.pop();
    if (!last) return;
    typing = null;
    kept.kind = last.kind;
    kept.chosen = null;
    kept.notes = [];
    kept.docs[last.kind] = { ...kept.docs[last.kind], file: last.file };
    check(last.kind, { file: last.file }, true);
  };
  const drawHead = () => {
    const { catalogue } = kept;
    const examples = kept.kind === 'cluster' ? catalogue.clusters.map((name) => [name, `${name}: the cluster of rheostat demo`]) : catalogue.experiments.map(({ name, title, source }) => [name, `${source}: ${title}`]);
    const pick = (event) => { if (event.target.value) replace(kept.kind, { example: event.target.value }); };
    put(tabs, Object.entries(TITLES).map(([kind, title]) => h('button', { type: 'button', class: 'tab', 'aria-pressed': kind === kept.kind ? 'true' : 'false', 'data-focus': `tab ${kind}`, onclick: async () => { await settled(); kept.kind = kind; kept.chosen = null; kept.notes = []; typing = null; draw(); } }, title)),
      h('div', { class: 'actions' },
        h('label', {}, h('span', { class: 'hidden' }, 'Take an example'), h('select', { onchange: pick, 'data-focus': 'examples' }, h('option', { value: '' }, 'Examples …'), examples.map(([value, words]) => h('option', { value }, words)))),
        h('button', { type: 'button', class: 'quiet', 'data-focus': 'new', onclick: fresh }, 'New'), h('button', { type: 'button', class: 'quiet', onclick: () => opening.click() }, 'Open …'),
        h('button', { type: 'button', class: 'quiet', 'data-focus': 'undo', title: 'Takes the last step back', onclick: back }, 'Undo'),
        h('button', { type: 'button', class: 'quiet', 'data-focus': 'over', onclick: takeOver }, `Take over the ${other()}`),
        h('button', { type: 'button', 'data-focus': 'save', onclick: save }, 'Save')));
  };
  const fresh = async () => {
    if (kept.kind === 'cluster') { await replace('cluster', { file: copy(BEGINNINGS.cluster) }); return; }
    try {
      const answer = await post('design/take-over', { kind: 'experiment', from: kept.docs.cluster.file, into: null });
      put(said);
      remember();
      take('experiment', answer, true);
      kept.notes = answer.notes;
      draw();
    } catch (error) {
      put(said, error.message);
    }
  };

  // ---- What the server has said of the file.

  const told = () => {
    const { wrong, name, text: now } = doc();
    put(verdict, wrong ? [chip('grave', 'not right'), h('code', { class: 'why' }, wrong.text)] : [chip('good', 'right'), h('code', {}, COMMANDS[kept.kind](name))]);
    put(notes, kept.notes.length > 0 && h('ul', { class: 'wrong' }, kept.notes.map((note) => h('li', {}, note))));
    if (document.activeElement !== text) text.value = now;
    put(place, wrong?.line ? `Line ${wrong.line}: ${now.split('\n')[wrong.line - 1]?.trim().slice(0, 120) ?? ''}` : '');
    mark();
    drawPlaces();
    drawDerived();
    drawRunner();
  };
  /** Marks the field that is wrong. */
  const mark = () => {
    root.querySelectorAll('[data-key][aria-invalid]').forEach((field) => field.removeAttribute('aria-invalid'));
    const key = doc().wrong?.key;
    if (!key) return;
    const all = [...root.querySelectorAll('[data-key]')];
    const plain = (path) => path.replace(/\[\d+\]/g, '');
    (all.find((field) => field.dataset.key === key) ?? all.find((field) => plain(field.dataset.key) === key))?.setAttribute('aria-invalid', 'true');
  };
  text.addEventListener('input', () => {
    clearTimeout(timer);
    waiting = () => { waiting = null; remember(); typing = null; return check(kept.kind, { text: text.value }, true); };
    timer = setTimeout(() => waiting?.(), 500);
  });

  // ---- The map and what is chosen on it.

  const drawPlaces = () => {
    const { file, drawn } = doc();
    const names = KINDS[kept.kind].names(file);
    if (!width) return;
    put(map, names.length === 0 ? h('p', { class: 'note' }, 'There is no data center yet.') : drawMap(kept.kind, file, drawn, width, kept.chosen, choose, kept.places[kept.kind]));
  };
  const region = (name) => kept.catalogue.regions.findIndex((one) => one.name === name);
  /** Milliseconds there and back, negative where they are estimated. */
  const trip = (a, b) => {
    const [i, j] = [region(a), region(b)];
    return i < 0 || j < 0 || i === j ? undefined : kept.catalogue.trips[Math.max(i, j)][Math.min(i, j)];
  };
  const addPlace = (name) => {
    const kind = KINDS[kept.kind];
    changed(() => {
      const { file } = doc();
      const before = kind.names(file);
      const emulates = kind.emulates(file);
      kind.add(file, name);
      before.forEach((one, index) => {
        const ms = trip(one, name);
        if (ms !== undefined && emulates && !(kind.knows(file) && ms > 0)) kind.setLink(file, index, before.length, { trip: Math.abs(ms) });
      });
      kept.chosen = { dc: before.length };
    }, true);
  };
  const drawAdding = () => {
    const field = h('input', { type: 'text', list: 'regions', name: 'region', maxlength: 64, autocomplete: 'off', spellcheck: 'false', placeholder: 'us-east-1, eu-west-1, or your own', 'data-focus': 'region' });
    put(adding, h('form', { class: 'form', onsubmit: (event) => { event.preventDefault(); const name = field.value.trim(); if (name) { addPlace(name); field.value = ''; } } },
      h('label', { class: 'grow' }, 'Another data center', field), h('datalist', { id: 'regions' }, kept.catalogue.regions.map(({ name, cloud, place: where }) => h('option', { value: name }, where ? `${where}, ${cloud}` : cloud))),
      h('button', { type: 'submit', class: 'quiet' }, 'Add')),
    h('p', { class: 'note' }, 'Round trips between regions of the papers were measured there; those of the clouds are estimated from the distance. Choose a line to say better.'));
  };
  const drawInspector = () => {
    const { file } = doc();
    const fields = new Fields(file, changed);
    const kind = KINDS[kept.kind];
    const names = kind.names(file);
    if (kept.chosen?.dc !== undefined && kept.chosen.dc < names.length) inspectPlace(fields, kind, kept.chosen.dc);
    else if (kept.chosen?.link && kept.chosen.link[1] < names.length) inspectLink(kind, ...kept.chosen.link, names);
    else put(inspector, h('p', { class: 'note' }, 'Choose a data center or a line on the map.'), ...everywhere(fields));
    mark();
  };
  /** What holds for all links that say nothing of their own. */
  const everywhere = (fields) => {
    if (kept.kind === 'experiment') {
      return [h('h3', {}, 'All ways'), h('div', { class: 'form' }, fields.line(['cluster', 'round_trip_ms'], 'Round trip, ms', 'number', { hint: 'none' }), fields.line(['cluster', 'jitter_ms'], 'Jitter, up to ms', 'number', { hint: '0' }), fields.line(['cluster', 'gamma_shape'], 'Gamma shape', 'number', { hint: 'none' }), fields.line(['cluster', 'megabits'], 'Megabits per s', 'number', { hint: 'no limit' })),
        h('h3', {}, 'Within a data center, one way'), h('div', { class: 'form' }, fields.line(['cluster', 'local_ms'], 'To servers, ms', 'number', { hint: '0.1' }), fields.line(['cluster', 'near_ms'], 'To clients, ms', 'number', { hint: '0.1' }), fields.line(['cluster', 'local_jitter_ms'], 'Jitter, up to ms', 'number', { hint: '0' }))];
    }
    return [h('h3', {}, 'All ways'), h('div', { class: 'form' }, fields.line(['emulation', 'round_trip_ms'], 'Round trip, ms', 'number', { hint: 'none' }), fields.line(['emulation', 'jitter_ms'], 'Jitter, mean ms', 'number', { hint: '0' }), fields.line(['emulation', 'jitter_shape'], 'Its shape', 'number', { hint: '2' }),
      fields.yes(['emulation', 'known_regions'], 'as the papers measured them')),
    h('p', { class: 'note' }, 'Delays are emulated. Between real data centers, leave all of them out.')];
  };
  const inspectPlace = (fields, kind, index) => {
    const { file } = doc();
    const name = kind.names(file)[index];
    const rename = h('input', { type: 'text', value: name, maxlength: 64, autocomplete: 'off', spellcheck: 'false', 'data-key': kept.kind === 'cluster' ? `data_center[${index}].name` : `cluster.regions[${index}]`, 'data-focus': 'rename', onchange: (event) => changed(() => kind.rename(file, index, event.target.value.trim()), true) });
    const remove = h('button', { type: 'button', class: 'small danger', onclick: () => changed(() => { kind.remove(file, index); kept.chosen = null; }, true) }, 'Remove');
    if (kept.kind === 'experiment') {
      const loads = (file.load ?? []).map((load, number) => [load, number]).filter(([load]) => !load.data_centers?.length || load.data_centers.includes(index));
      put(inspector, h('header', {}, h('h3', {}, 'Data center'), remove), h('div', { class: 'form' }, h('label', { class: 'grow' }, 'Name', rename)),
        h('p', { class: 'note' }, loads.length ? `Clients here: ${loads.map(([load, number]) => `${load.clients ?? 1} of group ${number + 1} (${Object.keys(load.does ?? {})[0] ?? '?'})`).join(', ')}.` : 'No clients here.'));
      return;
    }
    const path = ['data_center', index];
    const listed = Array.isArray(look(file, [...path, 'node'])) && look(file, [...path, 'node']).length > 0;
    const apart = () => changed(() => {
      const count = Number(look(file, [...path, 'nodes']) ?? 1);
      delete file.data_center[index].nodes;
      file.data_center[index].node = Array.from({ length: Math.min(64, Math.max(1, count || 1)) }, (_, number) => ({ name: `${name}-${number + 1}` }));
    }, true);
    const together = () => changed(() => { const { length } = file.data_center[index].node; delete file.data_center[index].node; file.data_center[index].nodes = length; }, true);
    const nodes = listed ? [file.data_center[index].node.map((node, number) => h('div', { class: 'form row' }, fields.line([...path, 'node', number, 'name'], 'Node', 'text', { size: 'small', hint: `${name}-${number + 1}` }), fields.line([...path, 'node', number, 'host'], 'Host', 'text', { size: 'small', hint: 'as all' }), fields.line([...path, 'node', number, 'port'], 'First port', 'number', { hint: 'next' }), fields.line([...path, 'node', number, 'partitions'], 'Partitions', 'values', { size: 'small', hint: 'evenly' }), fields.remove([...path, 'node', number], `node ${number + 1}`))),
      h('div', { class: 'form' }, fields.add([...path, 'node'], 'Another node', () => ({})), h('button', { type: 'button', class: 'small', onclick: together }, 'Only how many'))]
      : h('div', { class: 'form' }, fields.line([...path, 'nodes'], 'Nodes', 'number', { hint: '1' }), h('button', { type: 'button', class: 'small', onclick: apart }, 'One by one'));
    put(inspector, h('header', {}, h('h3', {}, 'Data center'), remove), h('div', { class: 'form' }, h('label', { class: 'grow' }, 'Name', rename), fields.line([...path, 'host'], 'Host of its nodes', 'text', { hint: 'this machine' })), nodes);
  };
  const inspectLink = (kind, a, b, names) => {
    const { file } = doc();
    const now = kind.link(file, a, b);
    const drawnWay = (from, to) => doc().drawn?.ways?.find((one) => one.from === names[from] && one.to === names[to])?.ms;
    const number = (value) => (value.trim() === '' ? undefined : Number.isFinite(Number(value)) ? Number(value) : value);
    const line = (field, label, key) => h('label', { class: 'small' }, label, h('input', { type: 'text', inputmode: 'decimal', value: now[field] ?? '', placeholder: 'none', autocomplete: 'off', 'data-focus': `way ${field}`, 'data-key': key ?? `way ${field}`, oninput: (event) => changed(() => { now[field] = number(event.target.value); kind.setLink(file, a, b, now); }) }));
    const estimate = trip(names[a], names[b]);
    put(inspector, h('header', {}, h('h3', {}, `${names[a]} – ${names[b]}`), h('button', { type: 'button', class: 'small', 'data-focus': 'as others', onclick: () => changed(() => kind.setLink(file, a, b, {}), true) }, 'As all others')),
      h('p', { class: 'note' }, `Now: ${ways(drawnWay(a, b), drawnWay(b, a))}.`, estimate === undefined ? '' : estimate > 0 ? ` The papers measured ${span(estimate)} there and back.` : ` By the distance: ${span(-estimate)} there and back.`),
      h('div', { class: 'form' }, line('trip', 'Round trip, ms'), kind.hasJitter && line('jitter', 'Jitter, mean ms')),
      h('h3', {}, 'One direction, where it differs'), h('div', { class: 'form' }, line('there', `${names[a]} →, ms`), line('back', `${names[b]} →, ms`)));
  };

  // ---- Everything else of the file, as fields.

  const protocols = () => kept.catalogue.protocols.map(({ name }) => name);
  const known = (name) => kept.catalogue.protocols.find((one) => one.name === name);
  const card = (title, remove, ...children) => h('div', { class: 'card' }, h('header', {}, h('h3', {}, title), remove), ...children);
  const form = (...children) => h('div', { class: 'form' }, ...children);
  const derived = h('div');

  const clusterForms = (fields, file) => {
    const keyspaces = (Array.isArray(file.keyspace) ? file.keyspace : []).map((keyspace, index) => {
      const path = ['keyspace', index];
      const protocol = known(keyspace.protocol);
      return card(keyspace.name || `Keyspace ${index}`, fields.remove(path, `keyspace ${keyspace.name ?? index}`),
        form(fields.line([...path, 'name'], 'Name', 'text', { size: 'small' }), fields.choice([...path, 'protocol'], 'Protocol', protocols(), { again: true }), fields.line([...path, 'replicas'], 'Replicas', 'number', { hint: '1' }), fields.choice([...path, 'durability'], 'Durability', ['always', 'interval', 'memory'], { none: 'interval (usual)' }), fields.line([...path, 'history_ms'], 'History, ms', 'number', { hint: '0' }), fields.options([...path, 'options'], protocol?.options ?? [])),
        h('p', { class: 'note' }, protocol?.summary ?? ''));
    });
    const names = (doc().drawn?.nodes ?? []).map((node) => node.name);
    const places = KINDS.cluster.names(file);
    const clocks = (look(file, ['emulation', 'clock']) ?? []).map((_, index) => form(fields.choice(['emulation', 'clock', index, 'node'], 'Node', names), fields.line(['emulation', 'clock', index, 'offset_ms'], 'Its clock is ahead by, ms', 'number'), fields.remove(['emulation', 'clock', index], 'wrong clock')));
    const slow = (look(file, ['emulation', 'slow']) ?? []).map((_, index) => form(fields.choice(['emulation', 'slow', index, 'data_center'], 'Data center', places), fields.line(['emulation', 'slow', index, 'partition'], 'Partition', 'number'), fields.line(['emulation', 'slow', index, 'ms'], 'Sends late by, ms', 'number'), fields.remove(['emulation', 'slow', index], 'slow partition')));
    return [
      h('div', { class: 'two' },
        section('Cluster', null, form(fields.line(['cluster'], 'Name', 'words'), fields.line(['partitions'], 'Partitions', 'number', { hint: '1' }), fields.line(['base_port'], 'First port', 'number', { hint: '7400' }), fields.line(['shards'], 'Threads of a node', 'number', { hint: 'cores' }), fields.line(['folder'], 'Folder', 'text', { hint: 'beside the file' })),
          form(fields.yes(['in_memory'], 'nothing on disk'), fields.yes(['console', 'faults'], 'the console may cut links')),
          form(fields.line(['security', 'password'], "Clients' password", 'text', { secret: true }), fields.line(['security', 'cluster_password'], "The nodes' own", 'text', { secret: true }))),
        section('Faults', h('span', { class: 'note' }, 'emulated'), clocks, slow, form(fields.add(['emulation', 'clock'], 'A clock that is wrong', () => ({ node: names[0] ?? '', offset_ms: 20 })), fields.add(['emulation', 'slow'], 'A partition that is slow', () => ({ data_center: places[0] ?? '', partition: 0, ms: 50 }))),
          h('p', { class: 'note' }, 'A slow partition needs a node of its own. Links are cut and nodes ended while the cluster runs: on the page Map, and with ctl.'))),
      section('Keyspaces', fields.add(['keyspace'], 'Another keyspace', () => ({ name: `keyspace${keyspaces.length}`, protocol: 'causal' })), h('div', { class: 'cards' }, keyspaces)),
      section('Nodes', null, derived),
    ];
  };

  const whatClientsDo = (fields, path, act, places) => {
    const at = (field) => [...path, act, field];
    const line = (field, label, hint) => fields.line(at(field), label, 'number', { hint });
    const bytes = line('value_bytes', 'Bytes of a value', '64');
    switch (act) {
      case 'mix': return [line('put', 'Share of writes'), line('keys', 'Keys'), fields.choice(at('distribution'), 'Which keys', ['uniform', 'zipfian'], { none: 'uniform (usual)' }), line('think_ms', 'Pause, ms', '0'), line('rate', 'Or: per second', 'closed loop'), line('transactions', 'Share of transactions', '0'), line('transaction_keys', 'Keys of one', '1'), line('remote', 'Share sent elsewhere', '0'), bytes];
      case 'amplified': return [line('factor', 'Writes of a request'), line('keys', 'Keys'), bytes];
      case 'ping-pong': return [line('partition', 'Partition'), line('poll_ms', 'Looks every, ms', '0')];
      case 'alternating': return [fields.line(at('partitions'), 'Partitions', 'values'), line('think_ms', 'Pause, ms', '0'), fields.yes(at('writes'), 'writes')];
      case 'groups': return [line('writes', 'Writes'), line('keys', 'Keys'), bytes, line('think_ms', 'Pause, ms', '0'), fields.yes(at('settle'), 'with another read at the end')];
      case 'social': return [line('nodes', 'Nodes'), fields.choice(at('graph'), 'Graph', ['power-law', 'regular'], { none: 'power-law (usual)' })];
      case 'weather': return [line('nodes', 'Nodes'), fields.choice(at('shape'), 'Shape', ['line', 'grid'], { none: 'usual' }), line('put_percent', 'Writes, %')];
      case 'conjunctive': return [line('predicates', 'Predicates'), line('locals', 'Local ones'), line('chance', 'Chance'), line('rate', 'Per second')];
      default: return [];
    }
  };

  const experimentForms = (fields, file) => {
    const all = (name) => (Array.isArray(file[name]) ? file[name] : []);
    const places = KINDS.experiment.names(file).map((name, index) => [index, name]);
    const contenders = all('contender').map((one) => one.name ?? '');
    const sweeps = all('sweep').map((one) => one.name ?? '');
    const levels = kept.catalogue.levels;
    const measures = { choices: MEASURES };
    const loads = all('load').map((load, index) => {
      const path = ['load', index];
      const act = Object.keys(load.does ?? {})[0] ?? 'mix';
      const pick = h('label', {}, 'What they do', h('select', { 'data-focus': `act ${index}`, onchange: (event) => fields.set([...path, 'does'], { [event.target.value]: copy(ACTS[event.target.value][1]) }, true) }, Object.entries(ACTS).map(([value, [words]]) => h('option', { value, selected: value === act }, words)), !(act in ACTS) && h('option', { value: act, selected: true }, act)));
      return card(`Group ${index + 1}`, fields.remove(path, `group ${index + 1}`),
        form(fields.line([...path, 'clients'], 'Clients in each', 'number', { hint: '1' }), pick, whatClientsDo(fields, [...path, 'does'], act, places)),
        form(fields.some([...path, 'data_centers'], 'Where (none: everywhere)', places), fields.yes([...path, 'measured'], 'is measured', true)));
    });
    const contender = all('contender').map((one, index) => {
      const path = ['contender', index];
      const protocol = known(one.protocol);
      return card(one.name || `Contender ${index + 1}`, fields.remove(path, `contender ${one.name ?? index}`),
        form(fields.line([...path, 'name'], 'Name', 'text', { size: 'small' }), fields.choice([...path, 'protocol'], 'Protocol', protocols(), { again: true }), fields.choice([...path, 'read_level'], 'Level of reads', levels, { none: "the protocol's" }), fields.choice([...path, 'write_level'], 'Level of writes', levels, { none: "the protocol's" }),
          fields.line([...path, 'read_within'], 'Reads within, ms', 'option', { size: 'small', hint: 'no bound' }), fields.line([...path, 'write_within'], 'Writes within, ms', 'option', { size: 'small', hint: 'no bound' }), fields.choice([...path, 'strategy'], 'Transactions', ['coordinated', 'predicted'], { none: 'auto' }),
          fields.line([...path, 'service_level'], 'Service level', 'text', { hint: 'strong 200ms; eventual' }), fields.options([...path, 'options'], protocol?.options ?? [])),
        h('p', { class: 'note' }, protocol?.summary ?? ''));
    });
    const changes = (look(file, ['cluster', 'change']) ?? []).map((_, index) => {
      const path = ['cluster', 'change', index];
      return form(fields.line([...path, 'at_ms'], 'After, ms', 'number'), fields.choice([...path, 'between', 0], 'between', places), fields.choice([...path, 'between', 1], 'and', places), fields.line([...path, 'ms'], 'one way takes, ms', 'number'), fields.remove(path, 'change of a way'));
    });
    const cuts = (look(file, ['cluster', 'cut']) ?? []).map((_, index) => {
      const path = ['cluster', 'cut', index];
      return form(fields.line([...path, 'from_ms'], 'Cut after, ms', 'number'), fields.line([...path, 'until_ms'], 'until, ms', 'number'), fields.choice([...path, 'between', 0], 'between', places), fields.choice([...path, 'between', 1], 'and', places), fields.remove(path, 'cut link'));
    });
    const slow = file.cluster?.slow && form(fields.choice(['cluster', 'slow', 'data_center'], 'Slow: data center', places), fields.line(['cluster', 'slow', 'partition'], 'Partition', 'number'), fields.line(['cluster', 'slow', 'ms'], 'Sends late by, ms', 'number'), fields.remove(['cluster', 'slow'], 'slow partition'));
    const clocks = file.cluster?.clocks && form(fields.choice(['cluster', 'clocks', 'pattern'], 'Clocks', [['right', 'are right'], ['alternate', 'of odd partitions are behind'], ['spread', 'are spread']]), fields.line(['cluster', 'clocks', 'ms'], 'by, ms', 'number'), fields.remove(['cluster', 'clocks'], 'wrong clocks'));
    const sweep = all('sweep').map((_, index) => {
      const path = ['sweep', index];
      return form(fields.line([...path, 'name'], 'Name', 'words', { size: 'small' }), fields.line([...path, 'label'], 'Label', 'words', { size: 'small' }), fields.line([...path, 'paths'], 'Places in the file', 'list', { hint: 'load.0.does.mix.put' }), fields.line([...path, 'quick'], 'Values, quick', 'values', { size: 'small' }), fields.line([...path, 'full'], 'Values, full', 'values', { size: 'small' }), fields.remove(path, `sweep ${index + 1}`));
    });
    const size = (name) => form(h('strong', { class: 'lead' }, name), fields.line([name, 'warm_ms'], 'Warm, ms', 'number'), fields.line([name, 'measure_ms'], 'Measured, ms', 'number'), fields.line([name, 'repetitions'], 'Repetitions', 'number', { hint: '1' }), fields.line([name, 'slice_ms'], 'Slices, ms', 'number', { hint: 'none' }), fields.line([name, 'settle_ms'], 'Settles, ms', 'number', { hint: '1000' }), fields.line([name, 'operations'], 'Or operations', 'number', { hint: 'no end' }));
    const charts = all('chart').map((one, index) => {
      const path = ['chart', index];
      return form(fields.line([...path, 'name'], 'Name', 'words', { size: 'small' }), fields.line([...path, 'title'], 'Title', 'words'), fields.choice([...path, 'kind'], 'Kind', ['line', 'bar', 'cdf'], { again: true }), one.kind !== 'cdf' && fields.choice([...path, 'x'], 'Along', [...sweeps, 'time'], { none: 'contenders' }),
        fields.line([...path, 'y'], 'What', 'list', { hint: 'get_p99_ms', ...measures }), fields.line([...path, 'label'], 'Unit', 'words', { size: 'small' }), fields.choice([...path, 'panels'], 'Panels', sweeps, { none: 'one' }), fields.choice([...path, 'over'], 'Divided by', contenders, { none: 'nothing' }), fields.remove(path, `figure ${index + 1}`));
    });
    const tables = all('table').map((_, index) => form(fields.line(['table', index, 'title'], 'Table', 'words', { size: 'small' }), fields.line(['table', index, 'columns'], 'Columns', 'list', measures), fields.remove(['table', index], `table ${index + 1}`)));
    const expects = all('expect').map((_, index) => {
      const path = ['expect', index];
      return form(fields.line([...path, 'says'], 'What must hold', 'words'), fields.line([...path, 'measure'], 'Of what', 'words', { ...measures }), fields.choice([...path, 'of'], 'Of whom', contenders, { none: 'everybody' }), fields.choice([...path, 'over'], 'Divided by', contenders, { none: 'nothing' }), fields.line([...path, 'at_least'], 'At least', 'number'), fields.line([...path, 'at_most'], 'At most', 'number'), fields.remove(path, `expectation ${index + 1}`));
    });
    return [
      h('div', { class: 'two' },
        section('Experiment', null, form(fields.line(['name'], 'Name', 'words'), fields.line(['title'], 'Title', 'words'), fields.line(['seed'], 'Seed', 'number', { hint: '1' })),
          form(fields.line(['cluster', 'partitions'], 'Partitions', 'number', { hint: '1' }), fields.line(['cluster', 'replicas'], 'Replicas', 'number', { hint: '1' }), fields.some(['grounds'], 'Where it can run', [['virtual', 'virtual time'], ['processes', 'processes']], true)),
          form(fields.line(['source'], 'Source', 'words', { size: 'small' }), fields.line(['shows'], 'What it shows', 'words'))),
        section('Faults', h('span', { class: 'note' }, 'in virtual time'), slow, clocks, changes, cuts,
          form(!file.cluster?.slow && h('button', { type: 'button', class: 'small', onclick: () => fields.set(['cluster', 'slow'], { data_center: 0, partition: 0, ms: 50 }, true) }, 'A partition that is slow'), !file.cluster?.clocks && h('button', { type: 'button', class: 'small', onclick: () => fields.set(['cluster', 'clocks'], { pattern: 'spread', ms: 10 }, true) }, 'Clocks that are wrong'),
            places.length > 1 && fields.add(['cluster', 'change'], 'A way that changes', () => ({ at_ms: 500, between: [0, 1], ms: 300 })),
            places.length > 1 && fields.add(['cluster', 'cut'], 'A link that is cut', () => ({ from_ms: 500, until_ms: 1500, between: [0, 1] }))),
          h('p', { class: 'note' }, 'Crashes and lost disks are the simulator’s: rheostat sim.'))),
      section('Clients', fields.add(['load'], 'Another group', () => ({ clients: 1, does: { mix: copy(ACTS.mix[1]) } })), h('div', { class: 'cards' }, loads)),
      section('Contenders', fields.add(['contender'], 'Another contender', () => ({ name: `contender ${contender.length + 1}`, protocol: 'eventual' })), h('div', { class: 'cards' }, contender)),
      section('What varies', fields.add(['sweep'], 'Another sweep', () => ({ name: 'put', label: 'share of writes', paths: ['load.0.does.mix.put'], quick: [0.1, 0.5], full: [0.1, 0.3, 0.5, 0.9] })), sweep.length ? sweep : h('p', { class: 'note' }, 'Nothing: every contender is measured once for each repetition.')),
      section('How long', h('span', { class: 'note' }, 'in virtual time'), size('quick'), size('full')),
      section('Figures', fields.add(['chart'], 'Another figure', () => ({ name: `figure${charts.length + 1}`, title: 'Latency of reads', kind: 'bar', y: ['get_p99_ms'], label: 'ms' })), charts, tables, form(fields.add(['table'], 'Another table', () => ({ title: 'Numbers', columns: ['operations_per_second'] })))),
      section('What must hold', fields.add(['expect'], 'Another expectation', () => ({ says: 'reads are quick', measure: 'get_p99_ms', at_most: 10 })), expects.length ? expects : h('p', { class: 'note' }, 'Nothing is expected.')),
    ];
  };

  const drawDerived = () => {
    const nodes = doc().drawn?.nodes ?? [];
    const owned = (node) => (node.partitions === 0 ? 'none' : node.partitions === node.last - node.first + 1 ? (node.partitions === 1 ? `${node.first}` : `${node.first} to ${node.last}`) : `${node.partitions}`);
    put(derived, nodes.length === 0 ? h('p', { class: 'note' }, 'They follow from the file when it is right.')
      : table('Nodes', ['node', 'data center', 'host', 'partitions', 'for Redis clients', 'console', 'emulated'], nodes.map((node) => [h('strong', {}, node.name), node.data_center, node.host, owned(node), node.resp, node.console, [node.clock_ms ? `clock ${node.clock_ms > 0 ? '+' : ''}${node.clock_ms} ms` : '', node.slow_ms ? `sends ${node.slow_ms} ms late` : ''].filter(Boolean).join(', ') || '–'])));
  };
  const drawFields = () => {
    const { file } = doc();
    const fields = new Fields(file, changed);
    put(forms, kept.kind === 'cluster' ? clusterForms(fields, file) : experimentForms(fields, file));
    drawDerived();
    drawInspector();
  };

  // ---- Running.

  const run = async () => {
    await settled();
    try {
      kept.run = await post('design/run', { text: doc().text, form: kept.form });
      put(said);
    } catch (error) {
      put(said, error.message);
    }
    // Also where another page's runs: it is shown then, and can be cancelled.
    poll();
    drawRunner();
  };
  const cancel = async () => {
    try {
      kept.run = await post('design/cancel', {});
    } catch (error) {
      put(said, error.message);
    }
    drawRunner();
  };
  const poll = () => {
    endPolling?.();
    if (ended) return;
    endPolling = repeat(400, async () => {
      try {
        kept.run = await get('design/progress');
      } catch (error) {
        put(said, error.message);
        return;
      }
      if (ended) return;
      drawRunner();
      if (kept.run.state !== 'running') {
        endPolling?.();
        endPolling = null;
        drawResults();
      }
    });
  };
  const drawRunner = () => {
    if (kept.kind !== 'experiment') { put(runner); return; }
    const { wrong, drawn } = doc();
    const now = kept.run;
    const running = now?.state === 'running';
    const { limits } = kept.catalogue;
    const forms = ['quick', 'full'].map((name) => {
      const size = drawn?.[name];
      return h('option', { value: name, selected: name === kept.form }, size ? `${name}: ${size.rows} measurement${size.rows === 1 ? '' : 's'}, ${span(size.virtual_s * 1000)} of virtual time` : name);
    });
    const bar = running && h('div', { class: 'running' }, h('progress', { max: now.of, value: now.done + now.share, 'aria-label': 'How far it is' }), h('span', {}, `${now.name}: ${now.done} of ${now.of}, ${span(now.took_s * 1000)} of at most ${span(now.real_s * 1000)}`));
    const state = now && { done: ['good', 'done'], failed: ['grave', 'ended before its end'], cancelled: ['mild', 'cancelled'] }[now.state];
    put(runner, section('Run', h('span', { class: 'note' }, `one at a time; at most ${limits.rows} measurements, ${span(limits.virtual_s * 1000)} of virtual time, ${span(limits.real_s * 1000)} of real time`),
      h('div', { class: 'form' }, h('label', { class: 'grow' }, 'Size', h('select', { 'data-focus': 'size', onchange: (event) => { kept.form = event.target.value; } }, forms)),
        operates ? [h('button', { type: 'button', 'data-focus': 'run', disabled: running || Boolean(wrong), onclick: run }, 'Run'), running && h('button', { type: 'button', class: 'quiet danger', 'data-focus': 'cancel', onclick: cancel }, 'Cancel')] : h('p', { class: 'note' }, 'Runs take role operate.')),
      bar, !running && state && h('p', { class: 'ran' }, chip(...state), ` ${now.name}, ${now.form}: ${now.done} of ${now.of} measurements in ${span(now.took_s * 1000)}. ${now.why ?? ''}`)));
  };
  const drawResults = () => {
    stops.forEach((stop) => stop());
    stops = [];
    const result = kept.kind === 'experiment' ? kept.run?.result : null;
    if (!result || result.rows === 0) { put(results); return; }
    const drawn = result.pictures.map((picture) => figure(picture));
    stops = drawn.map(([, stop]) => stop);
    const [heads, ...rows] = result.table;
    const chips = { met: ['good', 'met'], failed: ['grave', 'failed'], 'not measured': ['plain', 'not measured'] };
    put(results, h('div', { class: 'figures' }, drawn.map(([element]) => element)),
      section(kept.run.title, h('span', { class: 'note' }, 'means over repetitions, as rheostat lab run prints them'), table('What was measured', heads.map((head, index) => (index ? [head, 'number'] : 'contender')), rows.map(([name, ...values]) => [h('strong', {}, name), ...values.map((value) => [value, 'number'])]))),
      result.findings.length > 0 && section('What must hold', null, table('Expectations', ['verdict', 'expectation', 'bound', 'found, at the worst place'], result.findings.map((one) => [chip(...chips[one.verdict]), [one.says, 'wide'], one.bounds, one.worst ?? '–']))));
  };

  const draw = () => {
    if (!doc()) return;
    drawHead();
    drawAdding();
    drawFields();
    told();
    drawResults();
  };

  put(root, h('section', { class: 'panel designer' }, tabs, opening, verdict, said, notes),
    h('div', { class: 'two wide' }, section('Drawing', h('span', { class: 'note' }, 'distance is delay'), map, adding), section('Chosen', null, inspector)),
    runner, results, forms, section('The file', h('span', { class: 'note' }, 'what is typed here is drawn; comments go when the drawing is changed'), text, place));
  const sized = onWidth(map, (now) => { width = now; if (doc()) drawPlaces(); });
  const begin = async () => {
    try {
      kept.catalogue ??= await get('design/catalogue');
      if (!kept.docs.cluster) take('cluster', await post('design/check', { kind: 'cluster', example: 'demo' }), true);
      if (!kept.docs.experiment) take('experiment', await post('design/take-over', { kind: 'experiment', from: kept.docs.cluster.file, into: null }), true);
      kept.run = await get('design/progress');
      if (ended) return;
      draw();
      if (kept.stale) soon();
      kept.stale = false;
      if (kept.run.state === 'running') poll();
    } catch (error) {
      put(said, error.message);
    }
  };
  begin();
  return () => {
    ended = true;
    kept.stale = waiting !== null;
    clearTimeout(timer);
    endPolling?.();
    stops.forEach((stop) => stop());
    sized();
  };
}
