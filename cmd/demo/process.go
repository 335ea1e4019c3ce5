package main

import (
	"context"

	"example.com/payonce/testkit/process"
)

// process is an API process, and the door to it.
type apiProcess struct {
	process.API
	door
}

// start starts the process where it listened before, if it did.
func (p *apiProcess) start(ctx context.Context, more ...string) error {
	err := p.API.Start(ctx, more...)
	if p.url != p.URL {
		p.url = p.URL
	}
	return err
}
