package server

var ImageFromEnv = imageFromEnv
