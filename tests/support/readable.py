"""What a page owes those who read it by a keyboard, a screen reader, or with weak eyes; asked in the browser.

The rules are axe-core's of the same names, as far as the pages can break them.
"""

from __future__ import annotations

#: Returns what is wrong, in words.
AUDIT = """(() => {
  const wrong = [], all = selector => [...document.querySelectorAll(selector)];
  const isSeen = one => one.getClientRects().length && getComputedStyle(one).visibility !== 'hidden';
  const say = (rule, one) => wrong.push(rule + ': ' + one.outerHTML.slice(0, 160));
  const text = one => (one.getAttribute('aria-label') || one.textContent || '').trim();
  if (!document.documentElement.lang) wrong.push('html-has-lang');
  if (!document.title) wrong.push('document-title');
  if (all('main').length !== 1) wrong.push('landmark-one-main');
  if (document.documentElement.scrollWidth > innerWidth) wrong.push('it is wider than the window');
  for (const one of all('a, button')) if (isSeen(one) && !text(one)) say('button-name, link-name', one);
  for (const one of all('a[aria-label], button[aria-label]'))
    if (!one.getAttribute('aria-label').includes(one.textContent.trim())) say('label-content-name-mismatch', one);
  for (const one of all('input:not([type=hidden])')) if (one.labels.length !== 1) say('label', one);
  for (const one of all('svg, progress')) if (!one.getAttribute('aria-label')) say('svg-img-alt', one);
  for (const one of all('nav, [role=group], [role=search]')) if (!one.getAttribute('aria-label')) say('region', one);
  for (const one of all('th')) if (!text(one) || one.scope !== 'col') say('empty-table-header', one);
  for (const one of all('table')) if (!one.getAttribute('aria-label')) say('table-name', one);
  for (const row of all('tbody tr'))
    if (row.cells.length !== row.closest('table').querySelectorAll('th').length) say('td-has-header', row);
  const ids = all('[id]').map(one => one.id);
  if (new Set(ids).size !== ids.length) wrong.push('duplicate-id: ' + ids);
  if (all('[tabindex]').some(one => one.tabIndex > 0)) wrong.push('tabindex');
  let before = 0;
  for (const one of all('h1, h2, h3, h4')) {
    const level = Number(one.tagName[1]);
    if (level > before + 1 || level === 1 && before) say('heading-order', one);
    before = level;
  }
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => {
    const [red, green, blue] = numbers(colour).map(part => part / 255).map(
      part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = one => {
    for (let at = one; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (numbers(colour)[3] !== 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || one.matches('script, style') || !isSeen(one)) continue;
    const pair = [light(getComputedStyle(one).color), light(ground(one))].sort((a, b) => a - b);
    if ((pair[1] + 0.05) / (pair[0] + 0.05) < 4.5) say('color-contrast', one);
  }
  for (const one of all('a, button, input')) {
    const box = one.getBoundingClientRect();
    if (isSeen(one) && box.right > 0 && one.matches('.do, button, input[type=search]') && box.height < 20)
      say('target-size', one);
  }
  return wrong;
})()"""
