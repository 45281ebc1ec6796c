package main

type checkCmd struct{}

func (checkCmd) Run() error { return nil }
