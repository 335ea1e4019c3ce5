package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// diskSize holds a cluster, two databases and its WAL with some room.
const diskSize = 192 << 20

// smallDisk is a file system of its own, in memory.
type smallDisk struct{ dir string }

// newSmallDisk mounts one, which takes root, or sudo without a password.
func newSmallDisk(ctx context.Context, bytes int) (*smallDisk, error) {
	dir, err := os.MkdirTemp("", "payonce-disk-")
	if err != nil {
		return nil, err
	}
	options := fmt.Sprintf("size=%d,mode=0755,uid=%d,gid=%d", bytes, os.Getuid(), os.Getgid())
	if out, err := asRoot(ctx, "mount", "-t", "tmpfs", "-o", options, "payonce-attack", dir); err != nil {
		return nil, errors.Join(fmt.Errorf("NOT TRIED: no file system can be mounted here, which takes Linux and root or sudo: %w: %s",
			err, out), os.Remove(dir))
	}
	return &smallDisk{dir}, nil
}

func asRoot(ctx context.Context, command ...string) (string, error) {
	if os.Getuid() != 0 {
		command = append([]string{"sudo", "-n"}, command...)
	}
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (d *smallDisk) ballast() string { return filepath.Join(d.dir, "of-others") }

// fill leaves no room.
func (d *smallDisk) fill() error {
	f, err := os.Create(d.ballast())
	if err != nil {
		return err
	}
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err = f.Write(block); err != nil {
			block = block[:len(block)/2] // what is left is less
		}
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

func (d *smallDisk) empty() error { return os.Remove(d.ballast()) }

func (d *smallDisk) remove() error {
	if out, err := asRoot(context.Background(), "umount", d.dir); err != nil {
		return fmt.Errorf("unmount %s: %w: %s", d.dir, err, out)
	}
	return os.Remove(d.dir)
}
