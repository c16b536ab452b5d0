package cli

import (
	"context"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"tranche/regional"
)

// rereadEvery is how often the files with secrets are looked at: a rotation needs no restart.
const rereadEvery = time.Second

// reread takes what changes in the files of tokens until ctx ends: the gateways' tokens, and the region's own. What cannot
// be read or is wrong changes nothing, and is said once.
func (o *nodeOptions) reread(ctx context.Context, gateways *regional.LiveTokens, contact *regional.HTTPCoordinator, log hclog.Logger) {
	var files []*rereadFile
	if o.gatewayTokens != "" {
		files = append(files, &rereadFile{path: o.gatewayTokens, what: "the gateways' tokens", take: func() error {
			list, err := o.gateways()
			if err == nil {
				err = gateways.Set(list)
			}
			return err
		}})
	}
	if o.tokenFile != "" {
		files = append(files, &rereadFile{path: o.tokenFile, what: "the region's token", take: func() error {
			token, _, err := o.regionToken()
			if err == nil {
				contact.SetToken(token)
			}
			return err
		}})
	}
	for _, f := range files {
		f.changed() // what it holds was read when the node started
	}
	tick := time.NewTicker(rereadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, f := range files {
			if !f.changed() {
				continue
			}
			if err := f.take(); err != nil {
				log.Error("read again "+f.what+": the ones before stay in force", "error", err)
				continue
			}
			log.Info("read again " + f.what)
		}
	}
}

// rereadFile is a file whose changes are taken.
type rereadFile struct {
	path, what string
	take       func() error
	seen       string
}

// changed says whether the file is another one, or was written, since it was last asked.
func (f *rereadFile) changed() bool {
	now := ""
	if info, err := os.Stat(f.path); err == nil {
		now = info.ModTime().Format(time.RFC3339Nano) + " " + info.Mode().String()
		if text, err := os.ReadFile(f.path); err == nil {
			now += string(text)
		}
	}
	if now == f.seen {
		return false
	}
	f.seen = now
	return true
}
