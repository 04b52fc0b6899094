// The page of `warpalloc report` as a reader uses it: by mouse, by keyboard, on a phone, on paper.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { audit, corpus, file, open, ptxas, report, settled, start, stop } from './browser.mjs';

before(start);
after(stop);

/** A kernel of so many instructions, each of which comes from a line of `long.cu`. */
function long(instructions) {
  const lines = ['.version 9.0', '.target sm_90', '.address_size 64', '.visible .entry long(.param .u64 p) .maxntid 256, 1, 1 {', '.reg .b32 %r<65>;', '.reg .b64 %rd<2>;', 'ld.param.u64 %rd1, [p];'];
  for (let at = 0; at < 64; at++) lines.push(`ld.global.u32 %r${at}, [%rd1+${4 * at}];`);
  for (let at = 64; at < instructions - 66; at++) {
    if (at % 10 === 0) lines.push(`.loc 1 ${1 + at / 10} 0`);
    lines.push(`add.u32 %r${at % 64}, %r${(at * 7 + 1) % 64}, %r${(at * 13 + 5) % 64};`);
  }
  for (let at = 0; at < 64; at++) lines.push(`st.global.u32 [%rd1+${4 * at}], %r${at};`);
  return [...lines, 'ret;', '}', '.file 1 "long.cu"', ''].join('\n');
}

let made;
/** The page that most tests look at. */
const sgemm = () => (made ||= report(corpus('sgemm_rb.sm_90.ptx')));
const chip = (page, cap) => page.locator(`#cap-choices label:has(b:text-is("${cap}"))`);
const told = (page) => page.textContent('#told');
const place = async (page) => Number(await page.getAttribute('#curve', 'aria-valuenow'));

test('it says nothing on the console and asks for nothing', async () => {
  const address = sgemm();
  const page = await open(address);
  assert.equal(await page.textContent('h1'), 'sgemm_rb8');
  assert.ok(await page.locator('#curve svg .area').count());
  assert.ok(await page.locator('#occupancy .stair').count());
  assert.ok(await page.locator('#pane-code .row').count() > 10);
  assert.ok(await page.locator('#ranges tbody tr').count() > 50);
  for (const chip of await page.locator('#cap-choices label').all()) await chip.click();
  await page.click('#theme');
  await settled(page);
  assert.deepEqual(page.said, []);
  assert.deepEqual(page.asked, [address]);
});

test('caps are chosen by mouse and by keyboard', async () => {
  const page = await open(sgemm());
  assert.match(await told(page), /^As it is, the kernel takes 112 registers, and 16 warps of 64 are resident\./);
  await chip(page, 80).click();
  assert.match(await told(page), /^Within 80 registers, 24 warps of 64 are resident instead of 16\. \w+ spills \d+ values/);
  assert.ok(await page.locator('#curve .over').count(), 'what is beyond the cap stands out');
  const loudest = await page.locator('#allocators tr.best td.cycles').textContent();
  await page.locator('#allocators input:not(:checked):not(:disabled)').first().click();
  assert.notEqual(await page.locator('#allocators tr:has(:checked) td.cycles').textContent(), loudest);
  await page.locator('#cap-choices input:checked').focus();
  await page.keyboard.press('ArrowRight');
  assert.match(await told(page), /^Within 64 registers, 32 warps/);
  assert.equal(await page.locator('#cap-choices input:checked').evaluate((input) => input === document.activeElement), true);
});

test('the curve, the code and what is live go together', async () => {
  const page = await open(sgemm());
  const peak = await place(page);
  await page.focus('#curve');
  await page.keyboard.press('ArrowRight');
  assert.equal(await place(page), peak + 1);
  await page.keyboard.press('End');
  assert.equal(await place(page), Number(await page.getAttribute('#curve', 'aria-valuemax')));
  assert.match(await page.locator('#pane-code .row.here').textContent(), /ret;/);
  await settled(page);
  assert.match(await page.textContent('#live-title'), /^Live at line \d+$/);
  const box = await page.locator('#curve').boundingBox();
  await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2);
  const middle = await place(page);
  assert.ok(middle > 300 && middle < 800, String(middle));
  await page.focus('#pane-code .rows');
  await page.keyboard.press('ArrowUp');
  assert.equal(await place(page), middle - 1);
  const active = await page.getAttribute('#pane-code .rows', 'aria-activedescendant');
  assert.equal(await page.getAttribute(`#${active}`, 'aria-selected'), 'true');
  await page.locator('#pane-code .row:not(.here):has(.live b)').first().click();
  assert.notEqual(await place(page), middle - 1);
  await page.click('#to-peak');
  assert.equal(await place(page), peak);
  await settled(page);
  assert.equal(await page.textContent('#live-title'), 'Live at the peak');
  const registers = await page.locator('#ranges tbody tr td:nth-child(2)').allTextContents();
  const sum = registers.reduce((all, own) => all + Number(own), 0);
  assert.match(await page.getAttribute('#curve', 'aria-valuetext'), new RegExp(`: ${sum} registers in use`));
});

test('spill code is found line by line', async () => {
  const page = await open(sgemm());
  assert.equal(await page.isDisabled('#to-next'), true);
  await chip(page, 64).click();
  await page.focus('#curve');
  await page.keyboard.press('Home');
  await page.click('#to-next');
  const marks = await page.locator('#pane-code .row.here .marks').textContent();
  assert.match(marks, /[↓↑]\d/);
  const first = await place(page);
  await page.click('#to-next');
  assert.ok(await place(page) > first);
  await page.click('#to-previous');
  assert.equal(await place(page), first);
  await page.click('#to-peak');
  await settled(page);
  assert.ok(await page.locator('#ranges tr.spilled').count());
});

test('what helped when it was tried stands on the page', async () => {
  const page = await open(report(corpus('locals.sm_90.ptx'), '--kernel', 'orbit'));
  const helps = page.locator('#help li');
  const found = await helps.allTextContents();
  const keep = found.find((text) => text.startsWith('keep its local arrays in registers: warpalloc alloc '));
  assert.match(keep, /registers?, local memory \d+ → \d+ bytes$/);
  assert.equal(await helps.first().locator('code').count(), 1);
  const none = await open(report(corpus('saxpy.sm_90.ptx')));
  assert.equal(await none.locator('#help').isVisible(), false);
});

test('values are put in order', async () => {
  const page = await open(sgemm());
  const names = () => page.locator('#ranges th[scope="row"]').allTextContents();
  const cheapest = await names();
  await page.selectOption('#order', 'written');
  const written = (await page.locator('#ranges tbody td:nth-child(4)').allTextContents()).map(Number);
  assert.notDeepEqual(await names(), cheapest);
  assert.equal(written[0], Math.min(...written));
  await page.locator('#ranges button').first().click();
  assert.match(await page.textContent('#here'), new RegExp(`^line ${written[0]}:`));
});

test('the address leads back to a cap and a line', async () => {
  const page = await open(`${sgemm()}#cap=48&line=200`);
  assert.match(await told(page), /^Within 48 registers/);
  assert.match(await page.textContent('#here'), /^line 200:/);
  await chip(page, 40).click();
  await settled(page);
  assert.equal(new URL(page.url()).hash, '#cap=40&line=200');
});

test('the theme follows the reader', async () => {
  const paper = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const address = sgemm();
  const light = await open(address, { colorScheme: 'light' });
  const dark = await open(address, { colorScheme: 'dark' });
  const [day, night] = [await paper(light), await paper(dark)];
  assert.notEqual(day, night);
  await light.focus('#theme');
  await light.keyboard.press('Enter');
  assert.equal(await paper(light), night);
  await dark.click('#theme');
  assert.equal(await paper(dark), day);
});

test('an accessibility audit finds nothing', async () => {
  const address = sgemm();
  for (const options of [{ colorScheme: 'light' }, { colorScheme: 'dark' }, { viewport: { width: 390, height: 844 } }]) {
    const page = await open(`${address}#cap=64`, options);
    await page.locator('#spilled summary').click();
    assert.deepEqual(await audit(page), [], JSON.stringify(options));
  }
});

test('a narrow page does not scroll sideways', async () => {
  const address = sgemm();
  for (const width of [320, 390, 768]) {
    const page = await open(`${address}#cap=64`, { viewport: { width, height: 800 } });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= width, `${wide} at ${width}`);
  }
});

test('paper is white and shows all values', async () => {
  const page = await open(`${sgemm()}#cap=64`, { colorScheme: 'dark' });
  await page.click('#theme');
  await page.click('#theme');
  await page.emulateMedia({ media: 'print' });
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(255, 255, 255)');
  assert.equal(await page.isVisible('#theme'), false);
  assert.equal(await page.isVisible('#to-peak'), false);
  const clipped = await page.evaluate(() => {
    const ranges = document.querySelector('#ranges');
    return ranges.scrollHeight - ranges.clientHeight;
  });
  assert.equal(clipped, 0);
  assert.ok((await page.pdf({ format: 'A4' })).length > 10_000);
});

test('twenty thousand instructions cost no more than what is in view', async () => {
  const page = await open(report(file('long.ptx', long(20_000))));
  assert.equal(await page.getAttribute('#curve', 'aria-valuemax'), '19999');
  // What a screen holds and some above and below it, wherever one is: counted, for clocks differ.
  const counts = await page.evaluate(async () => {
    const view = document.querySelector('#pane-code .rows');
    const frame = () => new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)); });
    let added = 0;
    const watch = new MutationObserver((records) => { for (const record of records) added += record.addedNodes.length; });
    watch.observe(view, { childList: true, subtree: true });
    const found = [];
    for (let at = 0; at <= 20; at++) {
      added = 0;
      view.scrollTop = (view.scrollHeight - view.clientHeight) * at / 20;
      await frame();
      found.push({ rows: view.querySelectorAll('.row').length, added });
    }
    // Three lines further, only those are drawn.
    view.scrollTop -= 2000;
    await frame();
    added = 0;
    view.scrollTop -= 60;
    await frame();
    return { found, step: added, curve: document.querySelector('#curve .edge').getAttribute('d').length };
  });
  for (const { rows, added } of counts.found) {
    assert.ok(rows >= 26 && rows <= 60, `${rows} rows`);
    assert.ok(added <= 60, `${added} added`);
  }
  assert.equal(counts.step, 3);
  assert.ok(counts.curve < 60_000, 'one step of the curve for a pixel');
  await page.focus('#curve');
  for (let at = 0; at < 50; at++) await page.keyboard.press('ArrowRight');
  await page.keyboard.press('End');
  assert.match(await page.locator('#pane-code .row.here').textContent(), /ret;/);
  assert.deepEqual(page.said, []);
});

test('the source stands beside the code', async () => {
  const ptx = file('long.ptx', long(400));
  file('long.cu', Array.from({ length: 40 }, (_, at) => `line ${at + 1} <b>&amp;</b>`).join('\n'));
  const page = await open(report(ptx));
  assert.equal(await page.locator('#beside button[aria-pressed="true"]').textContent(), 'long.cu');
  await page.locator('#pane-beside .row', { hasText: 'line 12 ' }).click();
  assert.match(await page.locator('#pane-beside .row.here').textContent(), /line 12 <b>&amp;<\/b>$/);
  const here = await place(page);
  await page.focus('#pane-code .rows');
  for (let at = 0; at < 10; at++) await page.keyboard.press('ArrowDown');
  assert.equal(await place(page), here + 10);
  assert.match(await page.locator('#pane-beside .row.related').textContent(), /line 13 /);
  await page.locator('#beside button', { hasText: 'Nothing' }).click();
  assert.equal(await page.locator('#pane-beside .row').count(), 0);
});

test('machine code stands beside the code', { skip: !ptxas && 'no ptxas: set WARPALLOC_PTXAS' }, async () => {
  const page = await open(report(corpus('sgemm_rb.sm_90.ptx'), '--ptxas', ptxas));
  assert.equal(await page.locator('#beside button[aria-pressed="true"]').textContent(), 'SASS');
  assert.ok(await page.locator('#pane-beside .row.related').count());
  const before = await place(page);
  await page.locator('#pane-beside .row').first().click();
  assert.notEqual(await place(page), before);
  assert.match(await page.textContent('#allocators'), /ptxas/);
  assert.deepEqual(await audit(page), []);
  assert.deepEqual(page.said, []);
});

test('hostile names stay text', async () => {
  const text = long(300).replace('long.cu"', '</script><img src=x onerror=alert(1)>.cu"');
  const page = await open(report(file('hostile.ptx', text)));
  assert.equal(await page.locator('img').count(), 0);
  assert.equal(await page.textContent('h1'), 'long');
  assert.deepEqual(page.said, []);
});

test('without a script there is a picture', async () => {
  const page = await open(sgemm(), { javaScriptEnabled: false });
  assert.equal(await page.isVisible('noscript svg .line'), true);
  assert.deepEqual(page.said, []);
});
