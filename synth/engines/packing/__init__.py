"""Throughput-optimal packings of trees and paths: models, prices, programs, schedules."""
