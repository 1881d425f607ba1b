"use strict";
(() => {
  const all = [...document.querySelectorAll("article")];
  const list = document.querySelector("main");
  const tools = document.querySelector(".gp-tools");
  const find = document.getElementById("find");
  const sort = document.getElementById("sort");
  const shown = document.getElementById("shown");
  const chips = [...tools.querySelectorAll("button")];
  const severity = { fail: 0, inconclusive: 1, pass: 2 };
  const facts = all.map((article, number) => ({
    article, number,
    verdict: severity[article.dataset.verdict],
    name: article.dataset.name.toLowerCase(),
    resolution: -Number(article.dataset.resolution),
    time: -Number(article.dataset.time),
    text: article.querySelector("summary").textContent.toLowerCase(),
  }));
  let wanted = "";

  function filter() {
    const terms = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const fact of facts) {
      const fits = (!wanted || fact.article.dataset.verdict === wanted) && terms.every((term) => fact.text.includes(term));
      fact.article.hidden = !fits;
      count += fits;
    }
    shown.textContent = count === all.length ? "" : `${count} of ${all.length} checks shown`;
  }

  function order() {
    const key = sort.value;
    const ranked = [...facts].sort((a, b) => (a[key] < b[key] ? -1 : a[key] > b[key] ? 1 : a.number - b.number));
    list.append(...ranked.map((fact) => fact.article));
  }

  function openLinked() {
    const linked = location.hash.startsWith("#check-") && document.getElementById(location.hash.slice(1));
    if (linked) {
      linked.querySelector("details").open = true;
      linked.scrollIntoView();
    }
  }

  find.addEventListener("input", filter);
  sort.addEventListener("change", order);
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      wanted = chip.dataset.show;
      for (const each of chips) each.setAttribute("aria-pressed", String(each === chip));
      filter();
    });
  }
  addEventListener("hashchange", openLinked);
  tools.hidden = false;
  openLinked();
})();
