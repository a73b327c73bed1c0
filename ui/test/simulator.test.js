// The simulator in a page, in a real browser, from a server of plain files: every scenario, steps, messages dropped and delayed, addresses good and bad, seeds, at two sizes and in both themes.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { after, before, test } from 'node:test';
import { AXE, BACK, judge, launch, openPage } from './browser.js';

const KINDS = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.wasm': 'application/wasm' };
const FOLDER = process.env.SIMULATOR_PAGE;

let server;
let browser;
let url;

before(async () => {
  server = createServer((request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url, 'http://localhost').pathname)).replace(/^\/lab\//, '/');
    try {
      const bytes = readFileSync(join(FOLDER, path.endsWith('/') ? `${path}index.html` : path));
      response.writeHead(200, { 'content-type': KINDS[extname(path)] ?? 'text/html' }).end(bytes);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  // Nothing may depend on where the page lies.
  url = `http://127.0.0.1:${server.address().port}/lab/`;
  browser = await launch();
});

after(async () => {
  await browser?.close();
  server?.closeAllConnections();
  server?.close();
});

async function open(hash = '', options = {}) {
  const opened = await openPage(browser, `${url}${hash}`, { ...options, origin: url });
  await opened.page.waitForSelector('svg.spacetime .operation', { state: 'attached' });
  return opened;
}

const verdict = (page) => page.locator('section[aria-label=Verdict] .chip').innerText();
const fragment = (page) => new URLSearchParams(new URL(page.url()).hash.slice(1));
const where = (page) => page.locator('.where').innerText();
/** The number of the message that says `words`. */
const saying = (page, words) => page.evaluate((wanted) => globalThis.page.report.messages.findIndex((message) => message.updates && message.words.includes(wanted)) + 1, words);
const choose = (page, number) => page.locator(`[data-message="${number}"]`).press('Enter');

for (const width of [1280, 390]) {
  for (const theme of ['light', 'dark']) {
    test(`the page at ${width} pixels in ${theme}`, async () => {
      const { page, end } = await open('#scenario=photo&variant=eventual', { width, theme });
      await page.evaluate(AXE);
      for (const [name, tab] of [['scenario', 'Scenario'], ['seed', 'Seed'], ['plan', 'Plan']]) {
        await page.getByRole('button', { name: tab, exact: true }).click();
        await judge(page, `simulator-${name}`, width, theme);
      }
      const back = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      assert.equal(back, BACK[theme]);
      await end();
    });
  }
}

test('every scenario under everything that it can be run with comes to what it says', async () => {
  const { page, end } = await open();
  const scenarios = await page.evaluate(() => globalThis.page.catalogue.scenarios);
  assert.ok(scenarios.length >= 9);
  for (const { name, variants } of scenarios) {
    await page.selectOption('select[name=scenario]', name);
    for (const variant of variants) {
      await page.selectOption('select[name=variant]', variant.name);
      assert.equal(fragment(page).get('variant'), variant.name);
      assert.match(await verdict(page), variant.breaks ? new RegExp(`${variant.breaks} is broken`) : /No promise is broken/, `${name} under ${variant.name}`);
    }
  }
  await end();
});

test('a violation names its operations, and they are marked in the diagram', async () => {
  const { page, end } = await open('#scenario=photo&variant=eventual');
  assert.match(await verdict(page), /causal is broken/);
  const involved = page.locator('.involved li');
  assert.ok(await involved.count() >= 2);
  assert.match(await involved.last().innerText(), /get causal photo → absent/);
  assert.equal(await page.locator('.spacetime .operation.grave').count(), await involved.count());
  const last = page.locator('.involved button').last();
  await last.click();
  assert.match(await where(page), /at 20\d\d ms/);
  await end();
});

test('steps go forward and back, by keys too, and show the servers at that moment', async () => {
  const { page, end } = await open('#scenario=photo&variant=causal');
  await page.locator('.spacetime').first().scrollIntoViewIfNeeded();
  await page.getByRole('button', { name: 'First step' }).click();
  const first = await where(page);
  assert.match(first, /^step 1 of \d+/);
  await page.locator('.scroll.time').focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  assert.match(await where(page), /^step 3 of/);
  await page.keyboard.press('ArrowLeft');
  assert.match(await where(page), /^step 2 of/);
  await page.keyboard.press('End');
  // Somewhere between, data center 1 has the comment and hides it.
  let hidden = null;
  for (let back = 0; back < 60 && !hidden; back++) {
    const held = page.locator('.of-state .held', { has: page.locator('.chip.grave') });
    if (await held.count() > 0) hidden = await held.first().innerText();
    await page.keyboard.press('ArrowLeft');
  }
  assert.ok(hidden, 'something is hidden at some step');
  assert.match(hidden, /^comment 2 /);
  assert.match(hidden, /waits for /);
  await page.getByRole('button', { name: 'First step' }).click();
  await page.getByRole('button', { name: 'Play' }).click();
  await page.waitForFunction(() => !document.querySelector('.where').innerText.startsWith('step 1 '));
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('button', { name: 'Wider' }).click();
  await page.getByLabel('also heartbeats').check();
  assert.ok(await page.locator('.spacetime .message.quiet').count() > 10, 'what keeps servers informed is drawn');
  await end();
});

test('a message is delayed and dropped, what follows is run anew, and the address has it', async () => {
  const { page, end } = await open('#scenario=photo&variant=eventual');
  const comment = await saying(page, ' comment=');
  await choose(page, comment);
  assert.match(await page.locator('.card.message').innerText(), /comment=2/);
  await page.fill('input[name=delay]', '400.0004');
  await page.getByRole('button', { name: 'Delay it by' }).click();
  await page.getByText('No promise is broken').waitFor();
  assert.equal(fragment(page).get('touch'), `${comment}w400`);
  assert.ok(await page.locator('.spacetime .message.touched').count() >= 1);
  const shared = page.url();
  await page.getByRole('button', { name: 'Drop it' }).click();
  await page.getByText('dropped by hand').waitFor();
  assert.equal(fragment(page).get('touch'), `${comment}d`);
  await page.locator('.card.message').getByRole('button', { name: 'Undo' }).click();
  await page.getByText('causal is broken').waitFor();
  assert.equal(fragment(page).get('touch'), null);
  // Whoever gets the address sees the same run.
  const other = await open(new URL(shared).hash);
  assert.match(await verdict(other.page), /No promise is broken/);
  assert.equal(await other.page.evaluate(() => globalThis.page.report.messages[globalThis.page.request.touches[0][0] - 1].touch), 400);
  await other.end();
  await end();
});

test('what is behind the address may be anything', async () => {
  const bad = ['#scenario=nothing', '#seed=-1&protocol=causal', '#seed=1&protocol=<img src=x onerror=alert(1)>', '#touch=zzz&scenario=photo', '#%00%ff', '#a=b', '#plan=protocol%20none', `#plan=${'x'.repeat(90_000)}`, '#scenario=photo&touch=' + Array.from({ length: 300 }, (_, n) => `${n}d`).join('_'),
    '#plan=protocol eventual%0Akeys a%0Acluster 8 x 64', '#scenario=__proto__', '#seed=1&protocol=causal&option=%5B', '#plan='];
  for (const hash of bad) {
    const { page, end } = await open(hash);
    assert.ok((await page.locator('.of-problem').innerText()).length > 10, `${hash.slice(0, 60)} is said to be wrong`);
    assert.equal(await page.locator('img[src=x]').count(), 0);
    assert.ok(await page.locator('select[name=scenario]').count() === 1, 'the page goes on with a scenario');
    await end();
  }
  const { page, end } = await open('#scenario=photo&variant=eventual&touch=999999999d&step=9999999');
  assert.match(await page.locator('section[aria-label=Verdict]').innerText(), /Nothing was done to message 999999999/);
  // Another address in the same page.
  await page.evaluate(() => { location.hash = '#scenario=moved&variant=eventual'; });
  await page.getByText('read-your-writes is broken').waitFor();
  await page.evaluate(() => { location.hash = '#nonsense'; });
  await page.getByText('which is nothing of a run').waitFor();
  await end();
});

test('a failing seed is found while the page answers, shared, and made smaller', async () => {
  const { page, end } = await open();
  await page.getByRole('button', { name: 'Seed', exact: true }).click();
  await page.selectOption('select[name=protocol]', 'causal');
  await page.check('input[name=published]');
  await page.fill('input[name=seed]', '1500');
  // How often the page could do something else meanwhile.
  await page.evaluate(() => {
    globalThis.beats = 0;
    const beat = () => { globalThis.beats += globalThis.page.searching ? 1 : 0; globalThis.beating = setTimeout(beat); };
    beat();
  });
  await page.getByRole('button', { name: 'Next failing seed' }).click();
  const found = await page.getByText(/Seed \d+ breaks/).innerText({ timeout: 120_000 });
  const beats = await page.evaluate(() => { clearTimeout(globalThis.beating); return globalThis.beats; });
  assert.ok(beats > 0 || / after 1 seeds /.test(found), `the page stood still while it searched: ${found}`);
  assert.match(await verdict(page), /is broken/);
  assert.ok(Number(fragment(page).get('seed')) > 1500);
  assert.equal(fragment(page).get('option'), 'published=true');
  const promise = (await verdict(page)).match(/([a-z-]+) is broken/)[1];
  await page.getByRole('button', { name: 'Plan', exact: true }).click();
  const before = (await page.inputValue('textarea[name=plan]')).split('\n').length;
  await page.getByRole('button', { name: 'Make it smaller' }).click();
  await page.getByText(/runs made it as small as this/).waitFor({ timeout: 180_000 });
  const text = await page.inputValue('textarea[name=plan]');
  assert.ok(text.split('\n').length < before / 2, `${before} lines became ${text.split('\n').length}`);
  assert.match(await verdict(page), new RegExp(`${promise} is broken`));
  assert.ok(fragment(page).get('plan').includes('protocol causal'), 'the address has the plan');
  // Something that is no plan is refused, and what was shown stays.
  await page.fill('textarea[name=plan]', 'nonsense <script>');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByText('this is no plan: line 1').waitFor();
  assert.match(await verdict(page), new RegExp(`${promise} is broken`));
  await end();
});

test('a planted bug is chosen and found', async () => {
  const { page, end } = await open('#seed=0&protocol=eventual&planted=counter-spends-before-durable');
  await page.getByRole('button', { name: 'Next failing seed' }).click();
  await page.getByText(/Seed \d+ breaks counters/).waitFor({ timeout: 120_000 });
  assert.equal(await page.inputValue('select[name=planted]'), 'counter-spends-before-durable');
  await page.locator('input[name=seed]').fill('18446744073709551616');
  await page.getByRole('button', { name: 'Run', exact: true }).click();
  await page.getByText('is no seed').waitFor();
  await end();
});
