package main

import (
	"context"

	"example.com/payonce/internal/children"
)

// process is an API process, and the door to it.
type process struct {
	children.API
	door
}

// start starts the process where it listened before, if it did.
func (p *process) start(ctx context.Context, more ...string) error {
	err := p.API.Start(ctx, more...)
	if p.url != p.URL {
		p.url = p.URL
	}
	return err
}
