package agent

import (
	"pointsman/config"
	"pointsman/record"
)

// recording is the recording of the configuration.
type recording struct {
	conf config.Record
	stop func() // nil = there is none
}

// applyRecord starts and stops the recording as configured.
func (a *Agent) applyRecord() {
	c := a.conf.File.Record
	if c == a.recording.conf {
		return
	}
	a.stopRecording()
	a.recording.conf = c
	if c.File == "" {
		return
	}
	a.Log.Info("recording traffic, without text or ids", "file", c.File)
	a.recording.stop = a.recorder.File(record.FileOptions{
		Path: c.File, MaxBytes: int64(c.MaxSize), MaxFiles: c.MaxFiles,
	}, a.Log)
}

// stopRecording ends the recording after everything received is written.
func (a *Agent) stopRecording() {
	if a.recording.stop != nil {
		a.recording.stop()
	}
	a.recording = recording{}
}
