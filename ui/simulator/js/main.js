// The page: what is run, what came of it, one step after the other.

import { chip, h, onWidth, put, section, table } from '../js/dom.js';
import { count } from '../js/format.js';
import { themeChoice } from '../js/theme.js';
import { read, write } from './address.js';
import { machine } from './machine.js';
import { plain, spacetime, MOST_DRAWN, named } from './spacetime.js';

/** How long a slice of a search lasts, in milliseconds. */
const SLICE_MS = 60;
/** A search that finds nothing ends after so many seeds. */
const MOST_SEEDS = 200_000;
const PLAY_MS = 650;

const breath = () => new Promise((resolve) => { setTimeout(resolve, 0); });

class Page {
  constructor(simulator) {
    this.simulator = simulator;
    this.catalogue = simulator.catalogue;
    this.request = null;
    this.report = null;
    this.step = 0;
    this.chosen = null;
    this.all = false;
    this.zoom = 1;
    this.playing = null;
    this.searching = false;
    this.took = 0;
    const places = ['choice', 'problem', 'verdict', 'bar', 'figure', 'detail', 'state', 'tables'];
    for (const place of places) this[place] = h('div', { class: `of-${place}` });
    this.problem.setAttribute('role', 'alert');
    this.scroll = h('div', { class: 'scroll time', tabindex: 0, role: 'region', 'aria-label': 'Diagram; the arrow keys go from step to step' });
    this.names = h('div', { class: 'names' });
    put(this.figure, this.names, this.scroll);
    this.progress = h('p', { class: 'note', role: 'status' });
    const main = h('main', { id: 'main', tabindex: -1 },
      section('Run', null, this.choice, this.progress, this.problem), this.verdict,
      section('Course', h('span', { class: 'note' }, 'click a message to drop or delay it'), this.bar, this.figure, this.detail),
      this.state, this.tables);
    put(document.body,
      h('a', { class: 'skip', href: '#main', onclick: (event) => { event.preventDefault(); main.focus(); } }, 'To the content'),
      h('header', { class: 'top line' }, h('h1', {}, h('img', { src: 'icon.svg', alt: '', width: 22, height: 22 }), 'Simulator'), h('div', { class: 'tools' }, themeChoice())),
      main, h('footer', {}, `Rheostat ${this.catalogue.version}. Everything runs in this page: the protocols as they are served, in virtual time. Nothing is sent anywhere.`));
    onWidth(this.scroll, (width) => { this.width = width; this.draw(); });
    addEventListener('hashchange', () => this.open());
    addEventListener('keydown', (event) => this.key(event));
    this.open();
  }

  /** Runs what the address says, or the first scenario. */
  async open() {
    if (location.hash === this.written) return;
    let asked;
    try {
      asked = read(location.hash);
    } catch (error) {
      this.say(error.message);
      if (this.report) return;
      asked = { request: null, step: null };
      this.request = this.first();
      await this.run(this.request, null, true);
      return;
    }
    const request = asked.request ?? this.first();
    if (!(await this.run(request, asked.step)) && !this.report) await this.run(this.first(), null, true);
  }

  first() {
    const [scenario] = this.catalogue.scenarios;
    return { scenario: scenario.name, variant: scenario.variants[0].name };
  }

  say(text) {
    put(this.problem, text ? h('p', { class: 'error' }, text) : null);
  }

  /** Runs `request` and shows step `step` of it; the last where there is none. `keep`: a problem that stands there stays. */
  async run(request, step = null, keep = false) {
    this.stop();
    const begun = performance.now();
    try {
      this.report = await this.simulator.run(request);
    } catch (error) {
      this.say(error.message);
      return false;
    }
    this.took = performance.now() - begun;
    if (!keep) this.say('');
    this.request = request;
    this.chosen = null;
    this.marked = new Set(this.report.verdict.shown.map(([event]) => event));
    this.index();
    this.step = Math.min(step ?? this.start(), this.report.steps.length - 1);
    put(this.progress, '');
    this.remember();
    this.choose();
    this.judge();
    this.draw();
    return true;
  }

  /** What is done again and again with a report, once. */
  index() {
    this.arrivals = new Map();
    this.report.steps.forEach((step, index) => step.got.forEach((number) => { if (!this.arrivals.has(number)) this.arrivals.set(number, index); }));
  }

  /** The last step before everything heals that a client's asking led to. */
  last() {
    const { steps, healed } = this.report;
    let last = steps.length - 1;
    for (let index = steps.length - 1; index >= 0; index--) {
      if (steps[index].asked && (healed === null || steps[index].at <= healed) && steps[index].lane !== null) return index;
      last = index;
    }
    return last;
  }

  /** Where a run is looked at first: at the end of what breaks a promise, or at the last step. */
  start() {
    const { steps, operations } = this.report;
    const ends = operations.filter((operation) => this.marked.has(operation.event)).map((operation) => operation.ended ?? operation.begun);
    if (ends.length === 0) return this.last();
    const place = steps.findLastIndex((step) => step.asked && step.at <= Math.max(...ends));
    return place < 0 ? this.last() : place;
  }

  remember() {
    this.written = write(this.request, this.step === this.start() ? null : this.step);
    history.replaceState(null, '', this.written);
    // What a browser makes of it can be spelled otherwise.
    this.written = location.hash;
  }

  // What is run.

  kind() {
    return this.tab ?? (this.request.scenario ? 'scenario' : this.request.seed !== undefined ? 'seed' : 'plan');
  }

  choose() {
    this.tab = undefined;
    this.showChoice();
  }

  showChoice() {
    const kind = this.kind();
    const tab = (name, text) => h('button', { type: 'button', class: 'tab', 'aria-pressed': String(kind === name), 'data-focus': `tab ${name}`, onclick: () => { this.tab = name; this.showChoice(); } }, text);
    const share = h('button', { type: 'button', class: 'quiet', 'data-focus': 'share', onclick: () => this.share() }, 'Copy the address of this run');
    put(this.choice, h('div', { class: 'tabs' }, tab('scenario', 'Scenario'), tab('seed', 'Seed'), tab('plan', 'Plan'), h('div', { class: 'actions' }, share)), { scenario: () => this.scenarioForm(), seed: () => this.seedForm(), plan: () => this.planForm() }[kind]());
  }

  async share() {
    try {
      await navigator.clipboard.writeText(location.href);
      put(this.progress, 'The address is in the clipboard.');
    } catch {
      put(this.progress, 'The address is that of this page.');
    }
  }

  scenarioForm() {
    const now = this.catalogue.scenarios.find((scenario) => scenario.name === this.request.scenario) ?? this.catalogue.scenarios[0];
    const variant = now.variants.find((one) => one.name === this.request.variant) ?? now.variants[0];
    const go = (name, wanted) => this.run({ scenario: name, variant: wanted });
    return [
      h('div', { class: 'form' },
        h('label', { class: 'grow' }, 'Scenario', h('select', { 'data-focus': 'scenario', name: 'scenario', onchange: (event) => { const next = this.catalogue.scenarios[event.target.selectedIndex]; go(next.name, next.variants[0].name); } },
          this.catalogue.scenarios.map((scenario) => h('option', { selected: scenario === now, value: scenario.name }, scenario.title)))),
        h('label', { class: 'grow' }, 'Protocol', h('select', { 'data-focus': 'variant', name: 'variant', onchange: (event) => go(now.name, now.variants[event.target.selectedIndex].name) },
          now.variants.map((one) => h('option', { selected: one === variant, value: one.name }, one.name)))),
        this.request.scenario ? null : h('button', { type: 'button', onclick: () => go(now.name, variant.name) }, 'Run')),
      h('p', { class: 'look' }, now.look),
    ];
  }

  seedForm() {
    const now = this.request.seed !== undefined ? this.request : { protocol: this.report.protocol, seed: '1' };
    const protocol = this.catalogue.protocols.find((one) => one.name === now.protocol) ?? this.catalogue.protocols[0];
    const field = {};
    const pick = (name, label, choices, value, none, again) => {
      field[name] = h('select', { name, 'data-focus': name, onchange: again ?? null }, none === null ? null : h('option', { value: '' }, none), choices.map(([of, text]) => h('option', { value: of, selected: of === value }, text ?? of)));
      return h('label', { class: 'grow' }, label, field[name]);
    };
    const made = () => {
      const request = { seed: field.seed.value.trim(), protocol: field.protocol.value };
      for (const name of ['profile', 'planted', 'held_to']) if (field[name].value) request[name] = field[name].value;
      if (field.counters.checked) request.counters = true;
      const options = [...(field.published?.checked ? ['published=true'] : []), ...(now.options ?? []).filter((option) => option !== 'published=true' && now.protocol === request.protocol)];
      if (options.length) request.options = options;
      return request;
    };
    field.seed = h('input', { name: 'seed', 'data-focus': 'seed', value: now.seed ?? '1', inputmode: 'numeric', autocomplete: 'off', maxlength: 20 });
    field.counters = h('input', { type: 'checkbox', name: 'counters', 'data-focus': 'counters', checked: now.counters === true });
    field.published = protocol.published ? h('input', { type: 'checkbox', name: 'published', 'data-focus': 'published', checked: (now.options ?? []).includes('published=true') }) : null;
    const submit = (event) => { event.preventDefault(); this.run(made()); };
    const again = () => { const request = made(); this.request = { ...request, planted: undefined }; this.tab = 'seed'; this.showChoice(); };
    return h('form', { class: 'form', onsubmit: submit },
      pick('protocol', 'Protocol', this.catalogue.protocols.map((one) => [one.name]), protocol.name, null, again),
      h('label', { class: 'small' }, 'Seed', field.seed),
      pick('profile', 'Profile', this.catalogue.profiles.map((one) => [one.name, `${one.name}: ${one.about}`]), now.profile, 'of the planted bug, or plain'),
      pick('planted', 'Planted bug', protocol.planted.map((bug) => [bug]), now.planted, 'none'),
      pick('held_to', 'Held to', this.catalogue.promises.map((promise) => [promise]), now.held_to, 'what the protocol promises'),
      h('label', { class: 'check' }, field.counters, 'counters'),
      field.published && h('label', { class: 'check' }, field.published, 'as published'),
      h('button', { type: 'submit', 'data-focus': 'run' }, 'Run'),
      h('button', { type: 'button', class: 'quiet', 'data-focus': 'next', onclick: () => this.find(made()) }, this.searching ? 'Stop' : 'Next failing seed'));
  }

  planForm() {
    const field = h('textarea', { name: 'plan', rows: 14, spellcheck: 'false', 'data-focus': 'plan', 'aria-label': 'Plan' });
    field.value = this.report.plan;
    return [field, h('div', { class: 'form' },
      h('button', { type: 'button', 'data-focus': 'run', onclick: () => this.run({ plan: field.value }) }, 'Run'),
      h('button', { type: 'button', class: 'quiet', 'data-focus': 'smaller', onclick: () => this.shrink(field.value) }, this.searching ? 'Stop' : 'Make it smaller'),
      h('span', { class: 'note' }, 'One thing on each line, as in crates/sim/plans. A plan that breaks a promise can be made smaller.'))];
  }

  stop() {
    this.searching = false;
    if (this.playing !== null) clearInterval(this.playing);
    this.playing = null;
  }

  /** Runs seeds after that of `request` until one breaks a promise. */
  async find(request) {
    if (this.searching) {
      this.searching = false;
      return;
    }
    this.stop();
    this.searching = true;
    this.request = this.request.seed !== undefined ? { ...request, seed: this.request.seed } : this.request;
    this.tab = 'seed';
    this.showChoice();
    const begun = performance.now();
    let [tried, slice, seed] = [0, 1, request.seed];
    try {
      // From the one after the one that is shown.
      if (/^\d+$/.test(seed) && this.request.seed === seed) seed = String(BigInt(seed) + 1n);
      while (this.searching && tried < MOST_SEEDS) {
        const since = performance.now();
        const came = await this.simulator.search({ ...request, seed, count: slice });
        const took = performance.now() - since;
        tried += came.tried;
        if (came.found) {
          await this.run({ ...request, seed: came.found[0] });
          put(this.progress, `Seed ${came.found[0]} breaks ${came.found[1]}, after ${count(tried)} seeds in ${((performance.now() - begun) / 1000).toFixed(1)} s.`);
          return;
        }
        if (came.next === null) break;
        seed = came.next;
        slice = Math.max(1, Math.min(200, Math.round((slice * SLICE_MS) / Math.max(1, took))));
        put(this.progress, `${count(tried)} seeds, none has broken a promise …`);
        await breath();
      }
      put(this.progress, `${count(tried)} seeds, up to ${seed}: none has broken a promise.`);
    } catch (error) {
      this.say(error.message);
    }
    this.searching = false;
    this.tab = 'seed';
    this.showChoice();
  }

  async shrink(text) {
    if (this.searching) {
      this.searching = false;
      return;
    }
    this.stop();
    this.searching = true;
    this.tab = 'plan';
    let [plan, runs, slice] = [text, 0, 10];
    try {
      while (this.searching) {
        const came = await this.simulator.shrink({ plan, count: slice });
        runs += came.runs;
        const same = came.plan === plan;
        plan = came.plan;
        put(this.progress, `Made smaller by ${count(runs)} runs: ${plan.split('\n').length} lines break ${came.promise} …`);
        if (came.done && same) break;
        // What is tried first is tried again each time: a longer slice comes further.
        if (same && slice >= 320) break;
        if (same || came.done) slice = Math.min(320, slice * 2);
        await breath();
      }
      this.searching = false;
      if (await this.run({ plan })) put(this.progress, `${count(runs)} runs made it as small as this: ${plan.trim().split('\n').length} lines.`);
      return;
    } catch (error) {
      this.say(error.message);
    }
    this.searching = false;
    this.showChoice();
  }

  // What came of it.

  judge() {
    const { verdict, promised, held_to: held, operations, events, end, messages, full, untouched, command } = this.report;
    const against = `what ${this.report.protocol} promises (${promised})${held ? `, and ${held}` : ''}`;
    const words = { kept: ['good', 'No promise is broken'], broken: ['grave', `${verdict.promise} is broken`], stopped: ['mild', 'The run was stopped'] }[verdict.came];
    const involved = verdict.shown.map(([event, why]) => {
      const operation = operations.find((one) => one.event === event);
      return h('li', {}, h('button', { type: 'button', class: 'small', 'data-focus': `event ${event}`, onclick: () => operation && this.to(operation.begun) }, event), ' ',
        operation ? `${this.report.lanes[operation.lane].name}: ${operation.text} → ${plain(operation.result) || 'no answer'}` : 'of the simulator itself', why && h('span', { class: 'note' }, ` ${why}`));
    });
    put(this.verdict, h('section', { class: 'panel', 'aria-label': 'Verdict' }, h('div', { class: 'verdict' }, chip(words[0], words[1]), h('span', { class: 'note' }, `The checkers held the history to ${against}.`)),
      verdict.text && h('p', { class: 'sentence' }, verdict.text.split('\n')[0]),
      involved.length > 0 && h('ol', { class: 'involved' }, involved),
      untouched.length > 0 && h('p', { class: 'error' }, `Nothing was done to message ${untouched.join(', ')}: there is none of that number before everything heals.`),
      full && h('p', { class: 'note' }, `Only the first ${count(messages.length)} messages are shown; the verdict is on the whole run.`),
      h('p', { class: 'note' }, `${count(events)} events of the simulator, ${(end / 1000).toFixed(1)} s of virtual time, in ${Math.max(1, Math.round(this.took))} ms.`, command && h('code', {}, ` ${command}`)),
      verdict.text.split('\n').length > 2 && h('details', {}, h('summary', {}, 'In the checkers’ words'), h('pre', { class: 'words', tabindex: 0 }, verdict.text))));
  }

  // Steps.

  /** The steps that can be gone to. */
  open_steps() {
    return this.report.steps.map((_, index) => index).filter((index) => this.all || this.report.steps[index].asked);
  }

  go(way) {
    const open = this.open_steps();
    if (open.length === 0) return;
    const place = way > 0 ? open.findIndex((index) => index > this.step) : open.findLastIndex((index) => index < this.step);
    if (place >= 0) this.show(open[place]);
    else if (this.playing !== null) this.play();
  }

  to(time) {
    const place = this.report.steps.findLastIndex((step) => step.at <= time);
    this.show(Math.max(0, place));
  }

  show(step) {
    this.step = step;
    this.remember();
    this.draw();
  }

  play() {
    if (this.playing !== null) {
      this.stop();
    } else {
      const open = this.open_steps();
      if (this.step >= (open.at(-1) ?? 0)) [this.step] = open;
      this.playing = setInterval(() => this.go(1), PLAY_MS);
    }
    this.draw();
  }

  key(event) {
    if (!this.report || event.altKey || event.ctrlKey || event.metaKey || event.target.closest?.('input, select, textarea')) return;
    const ways = { ArrowRight: () => this.go(1), ArrowLeft: () => this.go(-1), Home: () => this.show(this.open_steps()[0] ?? 0), End: () => this.show(this.last()) };
    if (!ways[event.key]) return;
    event.preventDefault();
    ways[event.key]();
  }

  // The diagram, and what stands around it.

  draw() {
    if (!this.report || !this.width) return;
    const { report } = this;
    const now = report.steps[this.step] ?? { at: 0, told: [], got: [], sent: [], lane: null };
    const open = this.open_steps();
    const place = open.findLastIndex((index) => index <= this.step);
    const button = (text, label, onclick, more = {}) => h('button', { type: 'button', class: 'quiet', 'aria-label': label, title: label, 'data-focus': label, onclick, ...more }, text);
    put(this.bar, h('div', { class: 'steps' },
      button('|◀', 'First step', () => this.show(open[0] ?? 0)), button('◀', 'Step back', () => this.go(-1)),
      button(this.playing === null ? 'Play' : 'Pause', this.playing === null ? 'Play' : 'Pause', () => this.play()),
      button('▶', 'Step forward', () => this.go(1)), button('▶|', 'Last step', () => this.show(this.last())),
      h('label', { class: 'slider' }, h('span', { class: 'hidden' }, 'Step'), h('input', { type: 'range', min: 0, max: Math.max(0, open.length - 1), value: Math.max(0, place), 'data-focus': 'slider', oninput: (event) => this.show(open[Number(event.target.value)] ?? 0) })),
      h('span', { class: 'note where' }, `step ${place + 1} of ${open.length}, at ${now.at} ms`)),
    h('div', { class: 'steps' }, button('−', 'Narrower', () => this.scale(1 / 1.5)), button('+', 'Wider', () => this.scale(1.5)),
      h('label', { class: 'check' }, h('input', { type: 'checkbox', checked: this.all, 'data-focus': 'all', onchange: (event) => { this.all = event.target.checked; this.draw(); } }), 'also heartbeats and rounds of stabilization')));
    const pick = (number) => { this.chosen = this.chosen === number ? null : number; this.draw(); };
    const { names, drawing, at, drawn } = spacetime(report, { all: this.all, width: this.width, zoom: this.zoom, now: now.at, chosen: this.chosen, marked: this.marked, pick });
    const { scrollLeft } = this.scroll;
    put(this.names, names);
    put(this.scroll, drawing);
    const inside = at > scrollLeft + 40 && at < scrollLeft + this.width - 60;
    this.scroll.scrollLeft = inside ? scrollLeft : at - this.width * 0.6;
    this.tell(now, drawn);
    this.servers();
    this.lists();
  }

  scale(by) {
    this.zoom = Math.min(16, Math.max(1, this.zoom * by));
    this.draw();
  }

  tell(now, drawn) {
    const { report } = this;
    const where = now.lane === null ? 'everywhere' : report.lanes[now.lane].name;
    const line = (number) => {
      const message = report.messages[number - 1];
      return message && h('button', { type: 'button', class: 'small', 'data-focus': `go ${number}`, onclick: () => { this.chosen = number; this.draw(); } }, `${number} ${message.kind}`);
    };
    put(this.detail, h('div', { class: 'two' },
      h('article', { class: 'card' }, h('h3', {}, `At ${now.at} ms, ${where}`),
        now.got.length > 0 && h('p', {}, 'receives ', now.got.map(line)), now.sent.length > 0 && h('p', {}, 'sends ', now.sent.slice(0, 24).map(line), now.sent.length > 24 && ` and ${now.sent.length - 24} more`),
        now.told.map(([who, what]) => h('p', { class: 'told' }, who === where ? '' : `${who} `, what)),
        drawn >= MOST_DRAWN && h('p', { class: 'note' }, `Only ${count(MOST_DRAWN)} messages are drawn.`)),
      this.chosen === null ? this.done() : this.message(this.chosen)));
  }

  /** What is done to messages of this run. */
  done() {
    const touches = this.request.touches ?? [];
    return h('article', { class: 'card' }, h('h3', {}, 'Done by hand'), touches.length === 0 && h('p', { class: 'note' }, 'Nothing. Choose a message in the diagram, or one of those of this step.'),
      touches.map(([number, done]) => h('p', {}, h('button', { type: 'button', class: 'small', 'data-focus': `go ${number}`, onclick: () => { this.chosen = number; this.draw(); } }, String(number)), done === 'drop' ? ' is dropped ' : ` is delayed by ${done} ms `,
        h('button', { type: 'button', class: 'small danger', 'data-focus': `undo ${number}`, onclick: () => this.touch(number, null) }, 'undo'))));
  }

  message(number) {
    const { report } = this;
    const message = report.messages[number - 1];
    if (!message) return this.done();
    const late = report.healed !== null && message.sent >= report.healed;
    const field = h('input', { type: 'number', name: 'delay', min: 1, max: 10000, value: typeof message.touch === 'number' ? message.touch : 200, 'data-focus': 'delay', 'aria-label': 'Delay in milliseconds' });
    // To the microsecond, as an address can say it.
    const delay = () => { const ms = Math.round(Number(field.value) * 1000) / 1000; if (ms > 0 && ms <= 10000) this.touch(number, ms); };
    return h('article', { class: 'card message' }, h('header', {}, h('h3', {}, `Message ${number}: ${message.kind}`), h('button', { type: 'button', class: 'small', 'data-focus': 'close', onclick: () => { this.chosen = null; this.draw(); } }, 'close')),
      h('p', {}, `${report.lanes[message.from].name} → ${report.lanes[message.to].name}, sent at ${message.sent} ms, `, message.arrived.length ? `arrives at ${message.arrived.join(' and ')} ms.` : `does not arrive: ${message.lost ?? 'its server stopped, or the run ended before'}.`),
      h('code', { class: 'says' }, message.words),
      late ? h('p', { class: 'note' }, 'It was sent after everything had healed, so nothing can be done to it.') : h('div', { class: 'form' },
        h('button', { type: 'button', 'data-focus': 'drop', disabled: message.touch === 'drop', onclick: () => this.touch(number, 'drop') }, 'Drop it'),
        h('span', { class: 'pair' }, h('button', { type: 'button', class: 'quiet', 'data-focus': 'delay it', onclick: delay }, 'Delay it by'), field, ' ms'),
        message.touch !== null && h('button', { type: 'button', class: 'quiet danger', 'data-focus': 'undo', onclick: () => this.touch(number, null) }, 'Undo')));
  }

  /** Does something to a message and runs again; what was done to later ones is undone, since those may be others now. */
  async touch(number, done) {
    const before = (this.request.touches ?? []).filter(([other]) => other < number);
    const touches = done === null ? before : [...before, [number, done]];
    const request = { ...this.request, touches };
    if (touches.length === 0) delete request.touches;
    if (await this.run(request, null)) {
      const place = this.report.steps.findIndex((step) => step.sent.includes(number));
      this.chosen = number;
      if (place >= 0) this.show(place);
    }
  }

  /** Each server as it was after its last step up to now. */
  servers() {
    const { report } = this;
    const states = new Map();
    for (let index = 0; index <= this.step && index < report.steps.length; index++) {
      const { state, lane } = report.steps[index];
      if (state) states.set(state.lane, state);
      else if (lane !== null && !report.lanes[lane].client) states.delete(lane);
    }
    const vector = (list) => (list.length === 0 ? '–' : list.map((stamp, dc) => h('div', {}, `${dc}: `, stamp)));
    const key = (held) => {
      const value = held.value === null ? 'deleted' : held.value;
      return h('div', { class: 'held' }, h('b', {}, report.keys[held.key]), ` ${value} `, h('span', { class: 'note' }, held.newest), held.hidden ? chip('grave', 'hidden') : chip('good', 'visible'),
        held.hidden && h('div', { class: 'note' }, held.hidden), held.needs && held.needs !== '{}' && h('div', { class: 'note' }, `needs ${held.needs}`));
    };
    const rows = report.lanes.map((lane, index) => [lane, states.get(index)]).filter(([lane]) => !lane.client).map(([lane, state]) => (state ? [
      h('b', {}, lane.name), [String(state.physical), 'number mono'], [state.clock, 'number mono'], [vector(state.stable), 'mono'],
      [state.received.length === 0 ? '–' : state.received.map(([dc, upto]) => h('div', {}, `${dc}: ${upto}`)), 'mono'], [String(state.waiting), 'number'], [state.held.length === 0 ? '–' : state.held.slice(0, 24).map(key), 'wide'],
    ] : [h('b', {}, lane.name), '–', '–', '–', '–', '–', 'nothing yet, or down']));
    put(this.state, section('Servers at this moment', h('span', { class: 'note' }, 'timestamps are milliseconds and a counter; 100000 is the beginning'),
      table('Servers at this moment', ['server', ['physical clock', 'number'], ['hybrid clock', 'number'], 'visible up to', 'arrived up to', ['waiting', 'number'], 'newest versions'], rows)));
  }

  lists() {
    const { report } = this;
    if (this.listed === report) return;
    this.listed = report;
    const rows = report.operations.map((operation) => [operation.event ?? '–', report.lanes[operation.lane].name, [`${operation.begun}`, 'number'], [operation.ended === null ? 'open' : `${operation.ended}`, 'number'], operation.text, [operation.result || 'no answer', 'wide']]);
    const messages = h('details', {}, h('summary', {}, 'Messages'));
    messages.addEventListener('toggle', () => {
      if (!messages.open || messages.children.length > 1) return;
      const shown = report.messages.map((message, index) => [message, index + 1]).filter(([message]) => message.asked).slice(0, 400);
      messages.append(table('Messages', [['number', 'number'], 'kind', 'from', 'to', ['sent', 'number'], ['arrived', 'number'], 'says'], shown.map(([message, number]) => [
        [h('button', { type: 'button', class: 'small', 'aria-label': named(report, number), onclick: () => { this.chosen = number; this.draw(); this.detail.scrollIntoView({ block: 'nearest' }); } }, String(number)), 'number'],
        message.kind, report.lanes[message.from].name, report.lanes[message.to].name, [`${message.sent}`, 'number'], [message.arrived.join(', ') || 'lost', 'number'], [message.words.slice(0, 200), 'wide'],
      ])));
    });
    put(this.tables, section('What clients asked', null,
      h('details', { open: rows.length <= 30 }, h('summary', {}, `${count(rows.length)} operations${rows.length > 1000 ? ', the first 1000 here' : ''}`), table('What clients asked', ['event', 'client', ['begun, ms', 'number'], ['ended, ms', 'number'], 'asked', 'came'], rows.slice(0, 1000))), messages));
  }
}

async function begin() {
  try {
    const simulator = await machine('simulator.wasm');
    globalThis.page = new Page(simulator);
  } catch (error) {
    put(document.body, h('main', { class: 'signin' }, h('h1', {}, 'Rheostat'), h('p', { role: 'alert' }, location.protocol === 'file:' ? 'A browser loads no WebAssembly from a file. Serve the folder: python3 -m http.server.' : `${error.message}.`)));
  }
}

begin();
