// Package browser tests the live view in a real Chromium. It is a module of its
// own for the sake of chromedp, which drives it.
//
//	FENCEPOST_CHROMIUM=$(scripts/chromium) go -C tools/browser test ./...
//	FENCEPOST_CHROMIUM=$(scripts/chromium) go -C tools/browser test -trimpath -run Pictures -pictures $PWD/docs/liveview ./...
//
// The second makes the pictures of the documents anew.
package browser
