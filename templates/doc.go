// Package templates renders what HAProxy reads: a complete configuration for a
// new install, and the file and lines that attach the agent to an HAProxy that
// already runs. The texts are in the .tmpl files beside it; each says why it
// has the lines it has.
package templates
