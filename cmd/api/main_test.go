package main

import (
	"testing"

	"example.com/payonce/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }
