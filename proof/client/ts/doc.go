// Package ts kills programs that use payonce's client in TypeScript, and counts what their customers were charged. The
// program is shop.mjs; the client is in the folder client/ts of the repository.
package ts
