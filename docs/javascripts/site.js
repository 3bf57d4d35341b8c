// What scrolls sideways can be reached with the keyboard: long lines of code, wide tables and pictures.
function letKeysReachWhatScrolls() {
  const scrolling = document.querySelectorAll(
    ".md-typeset pre > code, .md-typeset__scrollwrap, .picture"
  )
  for (const element of scrolling) {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0
  }
}

addEventListener("load", letKeysReachWhatScrolls)
addEventListener("resize", letKeysReachWhatScrolls)
